package executor

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"golang.org/x/sys/unix"
)

// readable makes every rank's memory readable by every other's engine.
func (w *world) readable() {
	w.t.Helper()
	for _, e := range w.engines {
		e.setGrace(0)
		for r := range w.engines {
			must(w.t, e.SetPeerProcess(r, os.Getpid()))
		}
	}
}

// pull writes a plan in which rank 1 copies n bytes out of rank 0's send memory. A region
// holds rank 0's semaphore at 0 and address at 8, rank 1's reply at 64.
func pull(b *plugin.Builder, rank int, n int64) {
	word := func(r, offset int64) plugin.RefID {
		return b.Region(b.Const(testRegion), b.Const(r), b.Const(offset))
	}
	one, zero := b.Const(1), b.Const(0)
	b.Track(func() {
		if rank == 0 {
			b.Store(word(0, 8), b.Address(b.Send(b.Const(3))))
			epoch := b.Add(b.Load(word(0, 0)), one)
			b.Signal(word(0, 0), epoch, one)
			b.Wait(word(1, 64), epoch, one)
			return
		}
		epoch := b.Add(b.Load(word(1, 64)), one)
		b.Wait(word(0, 0), epoch, zero)
		b.Copy(b.Recv(zero), b.Peer(b.Load(word(0, 8)), zero, b.Const(2)), b.Const(n))
		b.Signal(word(1, 64), epoch, zero)
	})
}

func TestCopyFromAPeersMemory(t *testing.T) {
	w := newWorld(t, 2, 4096)
	w.readable()
	for _, n := range []int64{0, 1, 17, 4096, 3<<20 + 5} {
		send, recv := make([]byte, n+5), make([]byte, n)
		for i := range send {
			send[i] = byte(i % 251)
		}
		w.run(func(rank int, e *Engine) error {
			p := load(t, e, plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) { pull(b, rank, n) })
			if rank == 0 {
				return e.Run(p, arguments(send, nil, n, n), testDeadline)
			}
			return e.Run(p, arguments(nil, recv, n, n), testDeadline)
		})
		if !bytes.Equal(recv, send[5:]) {
			t.Errorf("%d bytes: the wrong ones", n)
		}
	}
}

// ended returns the number of a process that is no more.
func ended(t *testing.T) int {
	t.Helper()
	c := exec.Command("true")
	must(t, c.Run())
	return c.Process.Pid
}

// What cannot be read is an error that names the rank and why, and no crash.
func TestPeerMemoryThatCannotBeRead(t *testing.T) {
	page := int64(unix.Getpagesize())
	whole, inner := guarded(t, int(page))
	defer func() { must(t, unix.Munmap(whole)) }()
	last := int64(uintptr(unsafe.Pointer(&inner[0])))
	gone := ended(t)
	for _, c := range []struct {
		name          string
		address, rank int64
		offset, n     int64
		process       int
		code          plugin.Code
		reason        string
	}{
		{"null", 0, 1, 0, 8, os.Getpid(), plugin.System, "reading 8 bytes of rank 1's memory at 0x0: bad address"},
		{"kernel memory", math.MinInt64, 1, 0, 8, os.Getpid(), plugin.System,
			"reading 8 bytes of rank 1's memory at 0x8000000000000000: bad address"},
		{"a sum that wraps", -8, 1, 16, 8, os.Getpid(), plugin.System,
			"reading 8 bytes of rank 1's memory at 0x8: bad address"},
		{"an end that wraps", -8, 1, 0, 64, os.Getpid(), plugin.System,
			"reading 64 bytes of rank 1's memory at 0xfffffffffffffff8: bad address"},
		{"protected", last + page, 1, 0, 8, os.Getpid(), plugin.System,
			fmt.Sprintf("reading 8 bytes of rank 1's memory at %#x: bad address", last+page)},
		{"protected in its second page", last, 1, 0, page + 8, os.Getpid(), plugin.System,
			fmt.Sprintf("reading 8 bytes of rank 1's memory at %#x: bad address", last+page)},
		{"own", 8, 0, 0, 8, os.Getpid(), plugin.System, "reading 8 bytes of rank 0's memory at 0x8: bad address"},
		{"dead", last, 1, 0, 8, gone, plugin.PeerDied, "rank 1's process has ended while its memory was read"},
		{"unknown", last, 1, 0, 8, 0, plugin.Internal, "the memory of rank 1 cannot be read from here, and the plan needs it"},
		{"no such rank", last, 2, 0, 8, os.Getpid(), plugin.Internal, "there is no rank 2 in a world of 2"},
		{"negative length", last, 1, 0, -1, os.Getpid(), plugin.Internal, "a length of -1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 2, 4096)
			w.readable()
			e := w.engines[0]
			must(t, e.SetPeerProcess(1, c.process))
			p := load(t, e, plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) {
				b.Track(func() {
					b.Copy(b.Recv(b.Const(0)), b.Peer(b.Const(c.address), b.Const(c.rank), b.Const(c.offset)), b.Const(c.n))
				})
			})
			err := e.Run(p, arguments(nil, make([]byte, 2*page), 0, 0), testDeadline)
			f := failureOf(t, err)
			if c.code == plugin.System {
				c.reason += "; if it is mapped there, it is a device's: set SHUNT_PEER_READ=off"
			}
			if plugin.CodeOf(err) != c.code || f.Reason != c.reason || f.Step != 0 {
				t.Errorf("got %v %q at step %d, want %v %q at step 0", f.Code, f.Reason, f.Step, c.code, c.reason)
			}
			if (c.code == plugin.System || c.code == plugin.PeerDied) && f.Rank != int(c.rank) {
				t.Errorf("it names rank %d, want %d", f.Rank, c.rank)
			}
		})
	}
}

// Receive memory that is not there, or that may not be written, is the caller's mistake and not the peer's.
func TestCopyFromAPeerToMemoryThatIsNotThere(t *testing.T) {
	page := unix.Getpagesize()
	for name, protection := range map[string]int{"absent": unix.PROT_NONE, "for reading": unix.PROT_READ} {
		for _, there := range []int{0, page} { // bytes in front of what is not
			memory, err := unix.Mmap(-1, 0, 3*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			must(t, err)
			must(t, unix.Mprotect(memory[there:], protection))
			w := newWorld(t, 2, 4096)
			w.readable()
			source := make([]byte, 2*page)
			p := load(t, w.engines[0], plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) {
				address := b.Const(int64(uintptr(unsafe.Pointer(&source[0]))))
				b.Track(func() {
					b.Copy(b.Recv(b.Const(0)), b.Peer(address, b.Const(1), b.Const(0)), b.Const(int64(len(source))))
				})
			})
			f := failureOf(t, w.engines[0].Run(p, arguments(nil, memory, 0, 0), testDeadline))
			want := fmt.Sprintf("the receive memory of %d bytes at %p is not all mapped for writing on rank 0", len(memory),
				&memory[0])
			if f.Code != plugin.InvalidArgument || f.Reason != want || f.Rank != -1 {
				t.Errorf("%s after %d bytes: %v of rank %d, %q; want %q", name, there, f.Code, f.Rank, f.Reason, want)
			}
			must(t, unix.Munmap(memory))
			runtime.KeepAlive(source)
		}
	}
}

// The destination of a copy from a peer is checked as any other.
func TestCopyFromAPeerStaysInItsDestination(t *testing.T) {
	w := newWorld(t, 2, 4096)
	w.readable()
	e := w.engines[0]
	source := mapped(t, memfd(t, 64), 64)
	p := load(t, e, plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) {
		address := b.Const(int64(uintptr(unsafe.Pointer(&source[0]))))
		b.Track(func() { b.Copy(b.Recv(b.Const(1)), b.Peer(address, b.Const(1), b.Const(0)), b.Const(64)) })
	})
	err := e.Run(p, arguments(nil, make([]byte, 64), 0, 0), testDeadline)
	if !errors.Is(err, plugin.Internal) || !strings.Contains(err.Error(),
		"64 bytes at offset 1 exceed the receive memory of 64 bytes") {
		t.Error(err)
	}
}

// A peer whose memory is gone has mostly left a communicator that failed: the error is
// the reason of that failure, if it arrives in time.
func TestReasonsOfAPeersEndComeFirst(t *testing.T) {
	w := newWorld(t, 3, 4096)
	w.readable()
	e := w.engines[0]
	e.setGrace(testDeadline)
	must(t, e.SetPeerProcess(1, ended(t)))
	p := load(t, e, plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() {
			b.SignalAll(b.Region(b.Const(testRegion), b.Const(0), b.Const(0)), b.Const(1))
			b.Copy(b.Recv(b.Const(0)), b.Peer(b.Const(4096), b.Const(1), b.Const(0)), b.Const(8))
		})
	})
	done := make(chan error)
	go func() { done <- e.Run(p, arguments(nil, make([]byte, 8), 0, 0), testDeadline) }()
	waits := load(t, w.engines[2], plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() { b.Wait(b.Region(b.Const(testRegion), b.Const(0), b.Const(0)), b.Const(1), b.Const(0)) })
	})
	must(t, w.engines[2].Run(waits, arguments(nil, nil, 0, 0), testDeadline))
	begin := time.Now()
	e.Abort(plugin.PeerDied, 2)
	f := failureOf(t, <-done)
	if f.Code != plugin.Aborted || f.Cause != plugin.PeerDied || f.Origin != 2 {
		t.Errorf("%v: cause %v of rank %d, want peer_died of rank 2", f, f.Cause, f.Origin)
	}
	if took := time.Since(begin); took > testDeadline/2 {
		t.Errorf("it took %v to hear of the abort", took)
	}
}

func TestAddressStaysInTheCallersMemory(t *testing.T) {
	w := newWorld(t, 2, 4096)
	e := w.engines[0]
	send := mapped(t, memfd(t, 64), 64) // stays where it is
	at := int64(uintptr(unsafe.Pointer(&send[0])))
	for _, c := range []struct {
		offset int64
		null   bool
		want   int64
		reason string
	}{
		{0, false, at, ""},
		{64, false, at + 64, ""},
		{65, false, 0, "0 bytes at offset 65 exceed the send memory of 64 bytes"},
		{-1, false, 0, "0 bytes at offset -1 exceed the send memory of 64 bytes"},
		{0, true, 0, ""},
		{1, true, 0, "0 bytes at offset 1 exceed the send memory of 0 bytes"},
	} {
		p := load(t, e, plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) {
			b.Track(func() {
				b.Store(b.Region(b.Const(testRegion), b.Const(0), b.Const(0)), b.Address(b.Send(b.Const(c.offset))))
			})
		})
		memory := send
		if c.null {
			memory = nil
		}
		err := e.Run(p, arguments(memory, nil, 0, 0), testDeadline)
		switch {
		case c.reason == "" && err != nil:
			t.Error(err)
		case c.reason == "":
			if got := *(*int64)(unsafe.Pointer(&w.regions[0][0])); got != c.want {
				t.Errorf("offset %d: %#x, want %#x", c.offset, got, c.want)
			}
		case err == nil || !errors.Is(err, plugin.Internal) || !strings.Contains(err.Error(), c.reason):
			t.Errorf("offset %d: %v, want %q", c.offset, err, c.reason)
		}
	}
}

func TestSetPeerProcessRefuses(t *testing.T) {
	e, err := NewEngine(0, 2)
	must(t, err)
	for _, c := range [][2]int{{-1, 1}, {2, 1}, {0, -1}, {0, math.MaxInt32 + 1}} {
		if err := e.SetPeerProcess(c[0], c[1]); !errors.Is(err, plugin.InvalidArgument) {
			t.Errorf("process %d of rank %d: %v, want invalid_argument", c[1], c[0], err)
		}
	}
	e.Close()
	if err := e.SetPeerProcess(0, 1); !errors.Is(err, plugin.Closed) {
		t.Errorf("after Close: %v, want closed", err)
	}
}
