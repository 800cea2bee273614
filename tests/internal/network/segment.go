package network

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Segment is a network that hosts are joined by: every frame goes to every other host on it.
type Segment struct {
	mu    sync.Mutex
	links []*Link
}

// Link is a host's connection to a segment.
type Link struct {
	Name    string // of the interface, on the host
	tap     *os.File
	out, in *lane
}

var links atomic.Int32

// newLink makes an interface of this host, which the caller moves to another.
func (s *Segment) newLink() (*Link, error) {
	l := &Link{Name: fmt.Sprintf("shunt%d.%d", os.Getpid()%100000, links.Add(1))}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	var request struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:], l.Name)
	request.flags = unix.IFF_TAP | unix.IFF_NO_PI
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF,
		uintptr(unsafe.Pointer(&request))); errno != 0 {
		unix.Close(fd)
		return nil, fmt.Errorf("TUNSETIFF: %w", errno)
	}
	l.tap = os.NewFile(uintptr(fd), l.Name)
	l.in = newLane(func(frame []byte) { _, _ = l.tap.Write(frame) }) // an interface that is down takes none
	l.out = newLane(func(frame []byte) { s.pass(l, frame) })
	s.mu.Lock()
	s.links = append(s.links, l)
	s.mu.Unlock()
	go l.read()
	return l, nil
}

func (s *Segment) pass(from *Link, frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		if l != from {
			l.in.send(frame)
		}
	}
}

func (l *Link) read() {
	buffer := make([]byte, 1<<16)
	for {
		n, err := l.tap.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // the interface is down
			continue
		}
		l.out.send(append([]byte(nil), buffer[:n]...))
	}
}

// Set has the link treat what leaves its host, and what reaches it, so from now on.
func (l *Link) Set(out, in Condition) {
	l.out.set(out)
	l.in.set(in)
}
