package host

import (
	"context"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/algorithm"
)

// windowAlignment keeps the words that two ranks write in different lines.
const windowAlignment = 64

// PeerAddress returns where this rank's GPU reaches what corresponds to p on another rank: the same offset in what both
// gave to one RegisterSymmetric, or in a window. Kernels of the program may load and store there; what they
// need to agree on is theirs. The address is valid until this rank deregisters the memory or closes the window, and p's
// own for this rank. It is local.
func (c *Communicator) PeerAddress(p unsafe.Pointer, peer int) (unsafe.Pointer, error) {
	const what = "peer_address"
	release, err := c.enter(what)
	if err != nil {
		return nil, err
	}
	defer release()
	if peer < 0 || peer >= c.World() {
		return nil, c.observer.Invalid(what, "peer %d is not a rank of a world of %d", peer, c.World())
	}
	own := cuda.Ptr(uintptr(p))
	in := c.endpoints.Symmetric.Find(own, 1)
	if in == nil {
		return nil, c.observer.Invalid(what,
			"%p is neither in memory of a GPU that was registered as symmetric nor in a window of one", p)
	}
	address := in.Address(own, peer)
	return *(*unsafe.Pointer)(unsafe.Pointer(&address)), nil
}

// WindowHeader returns the number of bytes that NewWindowAt takes for itself, at the start of the memory.
func (c *Communicator) WindowHeader() int64 {
	_, header := algorithm.WindowBytes(c.World(), 0)
	return header
}

// NewWindowAt makes a window of memory that the caller has: bytes from p on, which lie in memory that was given to
// RegisterSymmetric, at the same offset on every rank, and at a multiple of 64 on each. The first WindowHeader bytes
// are the window's own, and Local returns what is behind them; they must be zero on every rank before any rank's first
// Signal or Wait, and are kept when the window is closed. It is local: the ranks make such windows in any order, and
// only those that use them. The memory stays registered until the window is closed.
func (c *Communicator) NewWindowAt(p unsafe.Pointer, bytes int64) (*Window, error) {
	const what = "new_window_at"
	release, err := c.enter(what)
	if err != nil {
		return nil, err
	}
	defer release()
	header := c.WindowHeader()
	if bytes < header || bytes > maxWindowBytes || uintptr(p)%windowAlignment != 0 {
		return nil, c.observer.Invalid(what, "%d bytes at %p; want %d to %d bytes at a multiple of %d", bytes, p, header,
			int64(maxWindowBytes), windowAlignment)
	}
	own := cuda.Ptr(uintptr(p))
	in := c.endpoints.Symmetric.Find(own, bytes)
	if in == nil {
		return nil, c.observer.Invalid(what,
			"%d bytes at %p are not all in one range of a GPU's memory that was registered as symmetric", bytes, p)
	}
	for peer := range c.World() {
		if in.Address(own, peer)%windowAlignment != 0 { // where its range begins elsewhere within a line
			return nil, c.observer.Invalid(what, "what rank %d has for %p is not at a multiple of %d", peer, p, windowAlignment)
		}
	}
	ctx, cancel := c.observer.Deadline(context.Background())
	defer cancel()
	memory, err := c.endpoints.WindowAt(ctx, in, own, bytes)
	return c.window(what, bytes-header, memory, err)
}
