package host

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/algorithm"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/endpoints"
)

// Window is memory of every rank that peers write, read and signal directly. It belongs to the communicator that made
// it, whose Close closes it too.
type Window struct {
	facts  call.Window // first: see Operation.arguments
	comm   *Communicator
	memory *endpoints.Window
	gone   atomic.Bool // Close was called; what the turn guards is in facts
}

// maxWindowBytes bounds the size of one.
const maxWindowBytes = 1 << 46

// NewWindow makes a window of the given bytes on every rank, zero-filled. It is collective; every rank gives the same
// size, or all fail with Mismatch. It is there until it or the communicator is closed. On GPUs its memory is symmetric:
// collectives that receive into it do so at one offset on all ranks, see RegisterSymmetric.
func (c *Communicator) NewWindow(ctx context.Context, bytes int64) (made *Window, err error) {
	defer noteContext(ctx, &err)
	const what = "new_window"
	if bytes < 0 || bytes > maxWindowBytes {
		return nil, c.observer.Invalid(what, "%d bytes; want 0 to %d", bytes, int64(maxWindowBytes))
	}
	number, release, err := c.enterContext(ctx, what, "window")
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := c.observer.Deadline(ctx)
	defer cancel()
	size := endpoints.WindowSize{Bytes: bytes}
	size.Total, size.Header = algorithm.WindowBytes(c.World(), bytes)
	tag := fmt.Sprintf("make a window (%s %d)", c.Label(), number)
	memory, err := c.endpoints.NewWindow(ctx, tag, size)
	return c.window(what, bytes, memory, err)
}

// window returns a window of so many bytes for the user, or the error of the call that was to make it.
func (c *Communicator) window(what string, bytes int64, memory *endpoints.Window, err error) (*Window, error) {
	if err != nil {
		return nil, c.observer.WrapError(what, err)
	}
	return &Window{facts: call.Window{Owner: &c.checker, ID: memory.ID, Bytes: bytes}, comm: c, memory: memory}, nil
}

func (w *Window) closed() bool { return w.gone.Load() || w.comm.turn.Closed() }

// Bytes returns the size of each rank's part; 0 once the window or its communicator is closed.
func (w *Window) Bytes() int64 {
	if w.closed() {
		return 0
	}
	return w.facts.Bytes
}

// Local returns this rank's part, which is valid until the window or its communicator is closed: to read or write there
// afterwards ends the program. From then on Local returns nil.
func (w *Window) Local() unsafe.Pointer {
	if w.closed() {
		return nil
	}
	return unsafe.Add(w.memory.Local, w.comm.WindowHeader())
}

// Put writes bytes at src into peer's part at offset. It is visible there after a Signal that follows it. Like the
// three calls below it runs in the default stream, if the memory is a GPU's; On has others.
func (w *Window) Put(peer int, offset int64, src unsafe.Pointer, bytes int64) error {
	return w.On(nil).Put(peer, offset, src, bytes)
}

// Get reads bytes of peer's part at offset into dst.
func (w *Window) Get(peer int, offset int64, dst unsafe.Pointer, bytes int64) error {
	return w.On(nil).Get(peer, offset, dst, bytes)
}

// Signal raises this rank's counter at peer by one, after every earlier Put.
func (w *Window) Signal(peer int) error {
	return w.On(nil).Signal(peer)
}

// Wait waits until peer has signalled this rank times more than was waited for before.
func (w *Window) Wait(peer int, times int64) error {
	return w.On(nil).Wait(peer, times)
}

// Close gives up this rank's part. No rank may use the window afterwards, though the memory lives for as long as a peer
// has it mapped. Close waits for nothing but the communicator's own operations, and leaves captures in progress alone.
func (w *Window) Close() error {
	if w.comm.turn.Wait("window close") != nil {
		return nil // the communicator is closed, and has taken its windows along
	}
	defer w.comm.turn.Leave()
	if w.facts.Closed {
		return nil
	}
	w.facts.Closed = true
	w.gone.Store(true)
	return w.memory.Close()
}
