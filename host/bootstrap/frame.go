package bootstrap

import (
	"bufio"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// A frame is a length (4 bytes, of kind and body), a kind (1 byte), a body and
// a MAC (16 bytes) over the frame's number, length, kind and body.
const (
	maxFrame    = 16 << 20
	macBytes    = 16
	headerBytes = 5
)

// frameConn sends and receives frames. One goroutine reads; any may write.
type frameConn struct {
	net.Conn
	r *bufio.Reader

	toStore, toClient hash.Hash // HMACs, keyed by direction

	recvMAC hash.Hash
	recvSeq uint64

	mu      sync.Mutex // guards what follows
	sendMAC hash.Hash
	sendSeq uint64
	buffer  []byte
	silence time.Duration // longest that a write may take; 0: no limit
}

// setSilence bounds every write from now on.
func (f *frameConn) setSilence(d time.Duration) {
	f.mu.Lock()
	f.silence = d
	f.mu.Unlock()
}

// frame is a kind and a body in two parts, so that one payload can be shared
// by frames to many.
type frame struct {
	kind    msgKind
	head    []byte
	payload []byte
}

func (fr frame) size() int { return headerBytes + len(fr.head) + len(fr.payload) + macBytes }

// write sends one frame.
func (f *frameConn) write(fr frame) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	length := 1 + len(fr.head) + len(fr.payload)
	if length > maxFrame {
		return plugin.Errorf(plugin.InvalidArgument, "a message of %d bytes, at most %d", length, maxFrame)
	}
	b := binary.LittleEndian.AppendUint32(f.buffer[:0], uint32(length))
	b = append(b, byte(fr.kind))
	b = append(b, fr.head...)
	b = append(b, fr.payload...)
	sum := macOf(b, f.sendMAC, f.sendSeq)
	b = append(b, sum[:]...)
	f.sendSeq++
	if cap(b) <= 64<<10 { // keep no giant buffer for the life of the job
		f.buffer = b
	}
	if f.silence > 0 {
		if err := f.SetWriteDeadline(time.Now().Add(f.silence)); err != nil {
			return err
		}
	}
	_, err := f.Conn.Write(b)
	return err
}

// macOf is the MAC of frame number seq.
func macOf(b []byte, mac hash.Hash, seq uint64) (sum [macBytes]byte) {
	var number [8]byte
	binary.LittleEndian.PutUint64(number[:], seq)
	mac.Reset()
	mac.Write(number[:])
	mac.Write(b)
	var full [64]byte
	copy(sum[:], mac.Sum(full[:0]))
	return sum
}

// read receives one frame. The body belongs to the caller.
func (f *frameConn) read() (msgKind, []byte, error) {
	kind, body, err := readFrame(f.r, f.recvMAC, f.recvSeq)
	f.recvSeq++
	return kind, body, err
}

// readFrame reads frame number seq. Memory grows only as bytes arrive, so a
// length alone reserves nothing.
func readFrame(r io.Reader, mac hash.Hash, seq uint64) (msgKind, []byte, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	length := binary.LittleEndian.Uint32(header[:4])
	if length < 1 || length > maxFrame {
		return 0, nil, plugin.Errorf(plugin.Protocol, "a frame of %d bytes, at most %d", length, maxFrame)
	}
	const step = 64 << 10
	rest := int(length) - 1 + macBytes
	b := append(make([]byte, 0, headerBytes+min(rest, step)), header[:]...)
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
	signed := b[:len(b)-macBytes]
	if want := macOf(signed, mac, seq); !hmac.Equal(want[:], b[len(signed):]) {
		return 0, nil, plugin.Errorf(plugin.Protocol, "a frame with a wrong MAC")
	}
	return msgKind(header[4]), signed[headerBytes:len(signed):len(signed)], nil
}

// lossReason says in words why a connection ended.
func lossReason(err error, silence time.Duration) string {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "it gave no sign of life for " + silence.String()
	case plugin.CodeOf(err) == plugin.Protocol:
		return "it sent a malformed message: " + err.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe):
		return "its process has ended, or its connection was closed without a goodbye"
	default:
		return "its connection was lost: " + err.Error()
	}
}
