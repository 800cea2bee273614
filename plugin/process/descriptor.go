package process

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// Descriptors of regions travel over a SOCK_SEQPACKET socket pair that the
// plugin inherits as descriptor 3, one frame each, before the message that
// holds the handle. A frame is 16 bytes, little endian, with exactly one
// descriptor beside it:
//
//	0   uint32  "SFD1"
//	4   uint32  region
//	8   uint64  endpoint
//
// The socket carries nothing else, and nothing the other way, so that its end
// tells each side that the other is gone.
const (
	descriptorFD = 3
	frameBytes   = 16
	frameMagic   = 0x31444653 // "SFD1" in memory order
)

// Limits of descriptors that have arrived and are not yet taken.
const (
	maxPending    = 1024
	descriptorFor = 2 * time.Second // how long an announced descriptor may take
)

func encodeFrame(endpoint uint64, region uint32) [frameBytes]byte {
	var f [frameBytes]byte
	binary.LittleEndian.PutUint32(f[0:], frameMagic)
	binary.LittleEndian.PutUint32(f[4:], region)
	binary.LittleEndian.PutUint64(f[8:], endpoint)
	return f
}

func decodeFrame(b []byte) (endpoint uint64, region uint32, err error) {
	if len(b) != frameBytes || binary.LittleEndian.Uint32(b) != frameMagic {
		return 0, 0, plugin.Errorf(plugin.Protocol, "descriptor frame of %d bytes is malformed", len(b))
	}
	return binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[4:]), nil
}

// descriptorPair makes the two ends. The host's is wrapped, the plugin's stays
// a file for exec.
func descriptorPair() (host *net.UnixConn, child *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, plugin.Errorf(plugin.System, "socketpair: %w", err)
	}
	child = os.NewFile(uintptr(fds[1]), "descriptors")
	host, err = wrapDescriptorSocket(fds[0])
	if err != nil {
		child.Close()
		return nil, nil, err
	}
	return host, child, nil
}

// wrapDescriptorSocket takes ownership of fd.
func wrapDescriptorSocket(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "descriptors")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, plugin.Errorf(plugin.System, "descriptor socket: %w", err)
	}
	u, ok := conn.(*net.UnixConn)
	if !ok {
		conn.Close()
		return nil, plugin.Errorf(plugin.Protocol, "descriptor %d is not a Unix socket", fd)
	}
	return u, nil
}

// sendDescriptor passes a duplicate of fd to the host; fd stays the caller's.
func sendDescriptor(conn *net.UnixConn, endpoint uint64, region uint32, fd int) error {
	frame := encodeFrame(endpoint, region)
	if _, _, err := conn.WriteMsgUnix(frame[:], unix.UnixRights(fd), nil); err != nil {
		return plugin.Errorf(plugin.System, "pass descriptor of region %d: %w", region, err)
	}
	return nil
}

// maxRights is how many descriptors a frame is looked through for, to close those that are too many.
const maxRights = 16

// receiveDescriptor reads one frame. The descriptor is the caller's. io.EOF
// says that the plugin is gone, unix.EAGAIN that there is no frame; an error with
// code Protocol that it misbehaves, one with code OutOfMemory that this process has no descriptor left.
func receiveDescriptor(conn syscall.RawConn) (endpoint uint64, region uint32, fd int, err error) {
	var data [frameBytes + 1]byte
	oob := make([]byte, unix.CmsgSpace(4*maxRights))
	var n, oobn, flags int
	if closed := conn.Control(func(fd uintptr) {
		for err = unix.EINTR; err == unix.EINTR; {
			n, oobn, flags, _, err = unix.Recvmsg(int(fd), data[:], oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		}
	}); closed != nil {
		err = closed
	}
	if err != nil {
		return 0, 0, -1, err
	}
	fds, err := rights(oob[:oobn])
	closeAll := func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
	if n == 0 && len(fds) == 0 {
		return 0, 0, -1, io.EOF
	}
	if flags&unix.MSG_CTRUNC != 0 && len(fds) < maxRights { // the kernel had no number for one
		closeAll()
		return 0, 0, -1, plugin.Errorf(plugin.OutOfMemory,
			"this process has no file descriptor left for a region: %w; raise its limit (ulimit -n)", unix.EMFILE)
	}
	if err != nil || flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0 || len(fds) != 1 {
		closeAll()
		return 0, 0, -1, plugin.Errorf(plugin.Protocol, "descriptor frame with %d descriptors, want 1", len(fds))
	}
	if endpoint, region, err = decodeFrame(data[:n]); err != nil {
		closeAll()
		return 0, 0, -1, err
	}
	return endpoint, region, fds[0], nil
}

func rights(oob []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fds, err
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

// arrivals holds descriptors until the reply that names them is read.
//
// The socket is read by serve as frames come, and before anybody looks for one: a reply
// comes another way, and may be read long before serve has run.
type arrivals struct {
	conn *net.UnixConn

	mu      sync.Mutex
	pending map[uint64]map[uint32]int // by endpoint and region; an endpoint not here is unknown
	count   int
	changed chan struct{} // closed and replaced at every arrival
	ended   bool          // nothing more is read
	err     error         // what the plugin, or this process, has done wrong
}

// newArrivals takes the frames of a socket, which stays the caller's.
func newArrivals(conn *net.UnixConn) *arrivals {
	return &arrivals{conn: conn, pending: map[uint64]map[uint32]int{}, changed: make(chan struct{})}
}

// serve reads frames until the socket ends. It returns nil when the plugin is
// gone or the host closed the socket, and an error when the plugin misbehaves.
func (a *arrivals) serve() error {
	raw, err := a.conn.SyscallConn()
	if err == nil {
		_ = raw.Read(func(uintptr) bool { // ends with the socket, or when somebody else has found its end
			a.mu.Lock()
			defer a.mu.Unlock()
			a.drain()
			return a.ended
		})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(err)
	return a.err
}

// drain reads the frames that are in the socket. a.mu is held.
func (a *arrivals) drain() {
	raw, err := a.conn.SyscallConn()
	for !a.ended {
		var endpoint uint64
		var region uint32
		var fd int
		if err == nil {
			endpoint, region, fd, err = receiveDescriptor(raw)
		}
		if err == nil {
			err = a.put(endpoint, region, fd)
		}
		switch {
		case err == nil:
		case errors.Is(err, unix.EAGAIN):
			return
		case plugin.CodeOf(err) == plugin.Protocol, plugin.CodeOf(err) == plugin.OutOfMemory:
			a.end(err)
		default:
			a.end(nil)
		}
	}
}

// expect makes an endpoint known.
func (a *arrivals) expect(endpoint uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ended {
		a.pending[endpoint] = map[uint32]int{}
	}
}

// forget closes what an endpoint never took.
func (a *arrivals) forget(endpoint uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop(endpoint)
}

// discard closes what a reply that was given up has left for a region.
func (a *arrivals) discard(endpoint uint64, region uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drain()
	if fd, ok := a.pending[endpoint][region]; ok {
		unix.Close(fd)
		delete(a.pending[endpoint], region)
		a.count--
	}
}

func (a *arrivals) drop(endpoint uint64) {
	for _, fd := range a.pending[endpoint] {
		unix.Close(fd)
		a.count--
	}
	delete(a.pending, endpoint)
}

// put keeps a descriptor. a.mu is held.
func (a *arrivals) put(endpoint uint64, region uint32, fd int) error {
	regions, known := a.pending[endpoint]
	if !known { // closed meanwhile
		unix.Close(fd)
		return nil
	}
	if old, ok := regions[region]; ok { // an earlier reply that was given up
		unix.Close(old)
		a.count--
	}
	regions[region] = fd
	if a.count++; a.count > maxPending {
		return plugin.Errorf(plugin.Protocol, "more than %d descriptors that no reply names", maxPending)
	}
	close(a.changed)
	a.changed = make(chan struct{})
	return nil
}

// take waits for the descriptor of a region; it becomes the caller's.
func (a *arrivals) take(ctx context.Context, endpoint uint64, region uint32) (int, error) {
	timeout := time.NewTimer(descriptorFor)
	defer timeout.Stop()
	for late := false; ; {
		a.mu.Lock()
		a.drain()
		fd, ok := a.pending[endpoint][region]
		if ok {
			delete(a.pending[endpoint], region)
			a.count--
		}
		changed, ended := a.changed, a.ended
		a.mu.Unlock()
		switch {
		case ok:
			return fd, nil
		case ended:
			return -1, plugin.Errorf(plugin.PluginDied, "the descriptor of region %d never came: the plugin is gone", region)
		case late:
			return -1, plugin.Errorf(plugin.Protocol, "the descriptor of region %d was announced and not sent", region)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return -1, plugin.Errorf(plugin.CodeOf(ctx.Err()), "waiting for the descriptor of region %d: %w", region,
				ctx.Err())
		case <-timeout.C:
			late = true // unless it came at the last moment
		}
	}
}

// end ends the reading, for a reason or for none, and wakes all that wait: serve, by a deadline. a.mu is held.
func (a *arrivals) end(err error) {
	if a.ended {
		return
	}
	a.ended, a.err = true, err
	for endpoint := range a.pending {
		a.drop(endpoint)
	}
	close(a.changed)
	a.changed = make(chan struct{})
	_ = a.conn.SetReadDeadline(time.Now()) // fails if it is closed, which wakes as well
}
