package bootstrap

import (
	"bufio"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// A frame is a length (4 bytes, of kind and body), then a kind (1 byte) and a
// body, encrypted by AES-GCM, whose tag (16 bytes) covers the length as well. The
// frame's number is the nonce; each connection and direction has its own key.
const (
	maxFrame    = 16 << 20
	tagBytes    = 16
	lengthBytes = 4
	headerBytes = lengthBytes + 1
)

// frameConn sends and receives frames. One goroutine reads; any may write.
type frameConn struct {
	net.Conn
	r *bufio.Reader

	toStore, toClient cipher.AEAD

	receives cipher.AEAD
	recvSeq  uint64

	mu      sync.Mutex // guards what follows
	sends   cipher.AEAD
	sendSeq uint64
	queue   []posted // the first of them is being written

	writing sync.Mutex    // guards what follows
	silence time.Duration // longest that a write may take; 0: no limit

	reading sync.Mutex    // guards what follows
	left    time.Duration // that reads may still take after the part of it that runs
	part    time.Duration

	exited atomic.Bool // the peer's process has ended; what it sent last is being read
}

// waitParts is the number of parts in which a peer is waited for. Where this process is stopped (Ctrl-Z, a suspended
// job, a paused container) one part ends at most: a peer that was stopped with it, and whose words are still on their
// way, is not taken for silent or late.
const waitParts = 8

// limitReads bounds reads that run and that follow, by time in which this process can run. It takes no point in time: a
// stop between its making and this call would be a wait that is over. neverSilent is no limit: the timer of a deadline
// holds its connection until it fires.
func (f *frameConn) limitReads(d time.Duration) error {
	f.reading.Lock()
	defer f.reading.Unlock()
	f.left = 0
	if d >= neverSilent {
		return f.Conn.SetReadDeadline(time.Time{})
	}
	f.left, f.part = d, d/waitParts+1
	return f.wait()
}

// wait begins the next part of what is left. f.reading is held.
func (f *frameConn) wait() error {
	part := min(f.left, f.part)
	f.left -= part
	return f.Conn.SetReadDeadline(time.Now().Add(part))
}

// Read reads from the connection until the last part of the limit has passed.
func (f *frameConn) Read(b []byte) (int, error) {
	for {
		n, err := f.r.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if err = f.goOn(err); err != nil {
			return 0, err
		}
	}
}

// goOn begins the next part of a wait; it returns the error of the part that has passed if that was the last.
func (f *frameConn) goOn(passed error) error {
	f.reading.Lock()
	defer f.reading.Unlock()
	if f.left <= 0 {
		return passed
	}
	return f.wait()
}

// setSilence bounds every write from now on, and what is left of one that runs.
func (f *frameConn) setSilence(d time.Duration) {
	f.writing.Lock()
	f.silence = d
	_ = f.limitPart() // fails if the connection is closed, as the write will
	f.writing.Unlock()
	f.resendWithin(d)
}

// limitPart bounds the part of a write that begins or runs. f.writing is held.
func (f *frameConn) limitPart() error {
	if f.silence <= 0 {
		return nil
	}
	return f.SetWriteDeadline(time.Now().Add(f.silence/waitParts + 1))
}

// resendWithin has the kernel send again what a network has lost ten times within a peer's silence, a second apart at
// least: it would else wait twice as long each time, so that an outage of two thirds of the silence were the end. Linux
// has it since 6.15. A kernel that gives up after few attempts would give up sooner then, and is left alone.
func (f *frameConn) resendWithin(silence time.Duration) {
	conn, is := f.Conn.(*net.TCPConn)
	if !is || resends() < enoughResends {
		return
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		wait := min(max(silence/10, shortestResend), longestResend)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, int(wait.Milliseconds()))
	})
}

// enoughResends is the kernel's default number of attempts to send. So many outlast a silence, a tenth of it apart.
const enoughResends = 15

// resends returns the number of attempts to send after which the kernel takes a connection for lost.
var resends = sync.OnceValue(func() int { // tests replace it
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_retries2")
	if err != nil {
		return enoughResends
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return enoughResends
	}
	return n
})

// What the kernel takes for the longest time between two attempts to send.
const (
	shortestResend = time.Second
	longestResend  = 2 * time.Minute
)

// frame is a kind and a body in two parts, so that one payload can be shared
// by frames to many.
type frame struct {
	kind    msgKind
	head    []byte
	payload []byte

	sent  func()          // called once it is written; may be nil
	after <-chan struct{} // it is not written before this is closed, or it is late; nil: it does not wait
	by    time.Time       // when it is late
}

func (fr frame) size() int { return headerBytes + len(fr.head) + len(fr.payload) + tagBytes }

// posted is an encrypted frame, and what to call once it is written or cannot be.
type posted struct {
	bytes []byte
	then  func(error)
}

// write sends one frame.
func (f *frameConn) write(fr frame) error {
	written := make(chan error, 1)
	if err := f.post(fr, func(err error) { written <- err }); err != nil {
		return err
	}
	return <-written
}

// say sends one message without waiting for a peer that takes nothing. said is closed once it is written, or cannot be:
// then the connection is closed, as its reader finds out. An error is about the message.
func (f *frameConn) say(m *message) (said <-chan struct{}, err error) {
	over := make(chan struct{})
	if err = f.post(m.frame(), func(failed error) {
		if failed != nil {
			f.Close()
		}
		close(over)
	}); err != nil {
		close(over)
	}
	return over, err
}

// post has a frame written after those before it. It keeps nothing of the frame, and does not block.
func (f *frameConn) post(fr frame, then func(error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	length := 1 + len(fr.head) + len(fr.payload)
	if length > maxFrame {
		return plugin.Errorf(plugin.InvalidArgument, "a message has %d bytes, want at most %d", length, maxFrame)
	}
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, fr.size()), uint32(length))
	b = append(b, byte(fr.kind))
	b = append(b, fr.head...)
	b = append(b, fr.payload...)
	b = f.sends.Seal(b[:lengthBytes], frameNonce(f.sends, f.sendSeq), b[lengthBytes:], b[:lengthBytes])
	f.sendSeq++
	f.queue = append(f.queue, posted{b, then})
	if len(f.queue) == 1 {
		go f.drain(f.queue[0])
	}
	return nil
}

// drain writes what is queued, and ends when there is nothing more.
func (f *frameConn) drain(next posted) {
	for more := true; more; {
		err := f.writeAll(next.bytes)
		f.mu.Lock()
		over := f.queue[:1]
		if err != nil { // nothing can follow a part of a frame
			over = f.queue
		}
		f.queue = f.queue[len(over):]
		if more = len(f.queue) > 0; more {
			next = f.queue[0]
		}
		f.mu.Unlock()
		for _, p := range over {
			p.then(err)
		}
		clear(over) // of a queue that goes on, which would keep the bytes
	}
}

// writeAll writes b, within f.silence of time in which this process can run.
func (f *frameConn) writeAll(b []byte) error {
	for parts := waitParts; ; parts-- {
		f.writing.Lock()
		err := f.limitPart()
		f.writing.Unlock()
		if err != nil {
			return err
		}
		n, err := f.Conn.Write(b)
		if b = b[n:]; parts == 1 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

// frameNonce returns the nonce of frame number seq.
func frameNonce(a cipher.AEAD, seq uint64) []byte {
	return binary.LittleEndian.AppendUint64(make([]byte, a.NonceSize()-8, a.NonceSize()), seq)
}

// read receives one frame. The body belongs to the caller.
func (f *frameConn) read() (msgKind, []byte, error) {
	kind, body, err := readFrame(f, f.receives, f.recvSeq)
	f.recvSeq++
	return kind, body, err
}

// receive receives one message.
func (f *frameConn) receive() (*message, error) {
	kind, body, err := f.read()
	if err != nil {
		return nil, err
	}
	return decode(kind, body)
}

// limitPeer bounds reads by a peer's silence, unless expectEnd bounds them.
func (f *frameConn) limitPeer(silence time.Duration) error {
	if f.exited.Load() {
		return nil
	}
	err := f.limitReads(silence)
	if f.exited.Load() { // since the question above
		err = f.limitReads(lastWords)
	}
	return err
}

// expectEnd is called when the peer's process has ended.
func (f *frameConn) expectEnd() {
	f.exited.Store(true)
	_ = f.limitReads(lastWords) // fails if the connection is closed, which is the aim
}

// readFrame reads frame number seq. Memory grows only as bytes arrive, so a
// length alone reserves nothing.
func readFrame(r io.Reader, receives cipher.AEAD, seq uint64) (msgKind, []byte, error) {
	var header [lengthBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	length := binary.LittleEndian.Uint32(header[:])
	if length < 1 || length > maxFrame {
		return 0, nil, plugin.Errorf(plugin.Protocol, "a frame has %d bytes, want at most %d", length, maxFrame)
	}
	const step = 64 << 10
	rest := int(length) + tagBytes
	b := append(make([]byte, 0, lengthBytes+min(rest, step)), header[:]...)
	for rest > 0 {
		n := min(rest, step)
		b = append(b, make([]byte, n)...)
		if _, err := io.ReadFull(r, b[len(b)-n:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
		rest -= n
	}
	plain, err := receives.Open(b[lengthBytes:lengthBytes], frameNonce(receives, seq), b[lengthBytes:], header[:])
	if err != nil {
		return 0, nil, plugin.Errorf(plugin.Protocol, "a frame that is not authentic")
	}
	return msgKind(plain[0]), plain[1:len(plain):len(plain)], nil
}

// betweenHosts reports whether the ends of the connection have addresses of two hosts.
func (f *frameConn) betweenHosts() bool {
	here, is := f.LocalAddr().(*net.TCPAddr)
	there, too := f.RemoteAddr().(*net.TCPAddr)
	return is && too && !here.IP.Equal(there.IP)
}

// lossReason says in words why the connection ended.
func (f *frameConn) lossReason(err error, silence time.Duration) string {
	switch {
	case f.exited.Load():
		return "its process has ended"
	case errors.Is(err, os.ErrDeadlineExceeded):
		why := "it gave no sign of life for " + silence.String() + ", ten times SHUNT_HEARTBEAT"
		if f.betweenHosts() { // where no end of its process is seen
			why += ", or the network between the hosts loses packets"
		}
		return why
	case plugin.CodeOf(err) == plugin.Protocol:
		return "it sent a malformed message: " + err.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), // with something of ours unread
		errors.Is(err, net.ErrClosed): // by a sender that had met one of these
		return "its process has ended, or its connection was closed without a goodbye"
	default:
		return "its connection was lost: " + err.Error()
	}
}
