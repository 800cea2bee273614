package host

import (
	"context"
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/algorithm"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/endpoints"
	"github.com/shunt-ccl/shunt/plugin"
)

// Window is memory of every rank that peers write, read and signal directly. It belongs to the communicator that made
// it.
type Window struct {
	facts    call.Window // first: see Operation.arguments
	comm     *Communicator
	endpoint *endpoints.Endpoint
	user     int64          // offset of the user's bytes in the region
	lent     bool           // the region is memory of the caller, see NewWindowAt
	local    unsafe.Pointer // this rank's region, where the host can reach it
	mappings endpoints.Mappings

	symmetric *buffers.Range // its memory, or what that lies in; nil for host memory
}

// maxWindows bounds the windows of one communicator at one time, maxWindowBytes the size of one.
const (
	maxWindows     = 1024
	maxWindowBytes = 1 << 46
)

// NewWindow makes a window of the given bytes on every rank, zero-filled. It is collective; every rank gives the same
// size, or all fail with Mismatch. On GPUs its memory is symmetric: collectives that receive into it do so at one
// offset on all ranks, see RegisterSymmetric.
func (c *Communicator) NewWindow(ctx context.Context, bytes int64) (*Window, error) {
	if bytes < 0 || bytes > maxWindowBytes {
		return nil, c.observer.Invalid("new_window", "%d bytes; want 0 to %d", bytes, int64(maxWindowBytes))
	}
	release, err := c.enter("new_window")
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := c.observer.Deadline(ctx)
	defer cancel()
	a, err := c.endpoints.ForWindows(ctx)
	tag := fmt.Sprintf("make a window (%s %d)", c.label, c.counters.Next("window"))
	if err == nil {
		err = c.roomForAWindow()
	}
	place, differ := c.agreeOnWindow(ctx, tag, bytes)
	if differ != nil {
		return nil, c.observer.WrapError("new_window", differ)
	}
	var mine plugin.Region
	var id uint32
	w := &Window{comm: c, endpoint: a}
	if err == nil {
		id = c.placeOfWindows() + place - a.Base
		w.facts = call.Window{Owner: &c.checker, ID: id, Bytes: bytes}
		var total int64
		total, w.user = algorithm.WindowBytes(c.world, bytes)
		mine, err = a.Endpoint.Allocate(ctx, id, total)
	}
	if err = c.group.Agree(ctx, tag+" memory", err); err != nil {
		if mine.Bytes > 0 {
			_ = w.free() // the agreed error matters more
		}
		return nil, c.observer.WrapError("new_window", err)
	}
	w.mappings, err = c.endpoints.Map(ctx, tag, a, []plugin.Region{mine})
	if err == nil {
		err = c.plans.PrepareAlone(ctx, tag+" plans", oneSided...)
	}
	if err != nil {
		w.unmap()
		_ = w.free() // likewise
		return nil, c.observer.WrapError("new_window", err)
	}
	w.local = w.mappings.Local(c.rank)
	if addresses := w.mappings.Addresses(0); addresses != nil {
		c.endpoints.Buffers.AddWindow(a.Base+id, addresses, mine.Bytes)
		w.symmetric = c.symmetric.AddWindow(w.mappings.Addresses(w.user), w.facts.Bytes)
	}
	c.windows[a.Base+id] = w
	return w, nil
}

// agreeOnWindow fails on every rank unless all make a window of the same size. It returns the first place among those
// of windows that is free on all: one rank may have closed windows that another has still open.
func (c *Communicator) agreeOnWindow(ctx context.Context, tag string, bytes int64) (uint32, error) {
	mine := binary.LittleEndian.AppendUint64(nil, uint64(bytes))
	replies, err := c.group.AllGather(ctx, tag, append(mine, c.openWindows()...))
	if err != nil {
		return 0, err
	}
	var first int64
	var open [maxWindows / 8]byte
	for rank, reply := range replies {
		if len(reply) != len(mine)+len(open) {
			return 0, &plugin.Error{Code: plugin.Protocol, Rank: rank,
				Message: fmt.Sprintf("rank %d sent a malformed size of its window", rank)}
		}
		theirs := int64(binary.LittleEndian.Uint64(reply))
		if rank == 0 {
			first = theirs
		}
		if theirs != first {
			return 0, &plugin.Error{Code: plugin.Mismatch, Rank: rank,
				Message: fmt.Sprintf("ranks disagree: rank 0 makes a window of %d bytes, rank %d one of %d", first, rank, theirs)}
		}
		for i := range open {
			open[i] |= reply[len(mine)+i]
		}
	}
	for place := range uint32(maxWindows) {
		if open[place/8]>>(place%8)&1 == 0 {
			return place, nil
		}
	}
	return 0, plugin.Errorf(plugin.OutOfMemory, "%d windows are open already, on one rank or another", maxWindows)
}

// openWindows returns a bit for each place of a window of NewWindow, which is set if the window is open.
func (c *Communicator) openWindows() []byte {
	bits := make([]byte, maxWindows/8)
	for at := range c.windows {
		if place := at - c.placeOfWindows(); place < maxWindows {
			bits[place/8] |= 1 << (place % 8)
		}
	}
	return bits
}

func (c *Communicator) roomForAWindow() error {
	if len(c.windows) >= maxWindows {
		return plugin.Errorf(plugin.OutOfMemory, "%d windows are open already", len(c.windows))
	}
	return nil
}

// placeOfWindows returns where windows begin in the executor's table: behind the endpoints' regions. The first
// maxWindows places are those of NewWindow, on which the ranks agree; behind them are those of NewWindowAt.
func (c *Communicator) placeOfWindows() uint32 {
	return uint32(len(c.member.Loaded) * plugin.MaxRegions)
}

// oneSided are the collectives whose plans are prepared with a window, so that none of them ever needs an agreement.
var oneSided = []plugin.Collective{plugin.Put, plugin.Get, plugin.Signal, plugin.Wait}

// Bytes returns the size of each rank's part.
func (w *Window) Bytes() int64 { return w.facts.Bytes }

// Local returns this rank's part; it stays valid until Close.
func (w *Window) Local() unsafe.Pointer {
	return unsafe.Add(w.local, w.user)
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
	if w.comm.waitTurn("window close") != nil {
		return nil // the communicator is closed, and has taken its windows along
	}
	defer w.comm.release()
	return w.release()
}

func (w *Window) release() error {
	if w.facts.Closed {
		return nil
	}
	w.facts.Closed = true
	delete(w.comm.windows, w.endpoint.Base+w.facts.ID) // where a later window has its place from now on
	if w.lent {
		w.comm.device.Exec.ClearRegion(w.endpoint.Base, w.facts.ID)
		return nil
	}
	w.unmap()
	return w.free()
}

// free gives this rank's memory back, also where the context of the call has ended: what stayed would keep its place
// from later windows.
func (w *Window) free() error {
	ctx, cancel := context.WithTimeout(context.Background(), w.comm.observer.Timeout)
	defer cancel()
	return w.endpoint.Endpoint.Free(ctx, w.facts.ID)
}

func (w *Window) unmap() {
	w.comm.symmetric.Remove(w.symmetric)
	if w.comm.device != nil {
		if err := w.comm.endpoints.Buffers.DropWindow(w.endpoint.Base + w.facts.ID); err != nil {
			w.comm.observer.Logger.Warn("a window could not be withdrawn from the directory of buffers", "communicator",
				w.comm.label, "rank", w.comm.rank, "reason", err)
		}
		w.comm.device.Exec.ClearRegion(w.endpoint.Base, w.facts.ID)
	} else {
		w.comm.engine.ClearRegion(w.endpoint.Base, w.facts.ID)
	}
	_ = w.mappings.Close() // a mapping of ours: munmap of a valid range does not fail
	w.mappings = nil
}
