package host

import (
	"fmt"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Register makes sure that long messages from and to memory of this rank's GPU go straight between the ranks' buffers,
// from the next call on. Without it that comes about by itself, some time after the first call that could use it; and a
// buffer that cannot be mapped by peers is staged, which Register reports.
//
// It is collective: every rank registers a buffer of its own. What is mapped is the whole allocation; of memory that
// was made with cuMemCreate, and mapped in pieces behind each other, all pieces that hold bytes of the buffer. Memory
// that is freed is forgotten by itself.
//
// Host memory is registered with transports that have an engine for it; where that fails, Register logs a warning and
// returns nil. It must be deregistered before it is freed: Go's by keeping it until then.
func (c *Communicator) Register(p unsafe.Pointer, bytes int64) error {
	if bytes <= 0 || p == nil {
		return c.observer.Invalid("register", "the buffer has %d bytes at %p, want one byte or more at an address", bytes, p)
	}
	release, err := c.enter("register")
	if err != nil {
		return err
	}
	defer release()
	if c.device == nil {
		c.endpoints.Engines.RegisterHost(p, bytes)
		return nil
	}
	if c.endpoints.Buffers == nil && c.endpoints.Engines != nil {
		c.endpoints.Engines.Ask(cuda.Ptr(uintptr(p)))
		return nil
	}
	ctx, cancel := c.observer.Deadline(c.job.Context)
	defer cancel()
	tag := fmt.Sprintf("register memory (%s %d)", c.Label(), c.counters.Next("registration"))
	if err := c.endpoints.Buffers.Register(ctx, c.group, tag, cuda.Ptr(uintptr(p)), bytes); err != nil {
		return c.observer.WrapError("register", err)
	}
	return nil
}

// Deregister undoes the last RegisterSymmetric at p, or one Register of the memory at p; the last one makes peers unmap
// it once the operations enqueued so far have ended. It is local, but what is symmetric must be so on all ranks or on
// none: they end that between the same two collectives.
//
// Memory that peers have mapped in the background is unmapped too, and no kernel that begins afterwards uses those
// mappings. A program that maps other memory at an address which graphs hold, and replays them, must call Deregister
// before: otherwise replays reach the earlier memory for up to a fifth of a second.
func (c *Communicator) Deregister(p unsafe.Pointer) error {
	release, err := c.enter("deregister")
	if err != nil {
		return err
	}
	defer release()
	if c.device == nil {
		c.endpoints.Engines.DeregisterHost(p)
		return nil
	}
	if w := c.endpoints.Lent(cuda.Ptr(uintptr(p))); w != nil {
		return c.observer.Invalid("deregister", "a window at %p in the memory is open", w.Local)
	}
	known := c.endpoints.Engines.Forget(cuda.Ptr(uintptr(p)))
	if ended, err := c.endpoints.Symmetric.Deregister(c.endpoints.Buffers, cuda.Ptr(uintptr(p))); ended {
		return err
	}
	if found, err := c.endpoints.Buffers.Deregister(cuda.Ptr(uintptr(p))); found || known || err != nil {
		return err
	}
	return plugin.Errorf(plugin.InvalidArgument, "deregister on rank %d: %p is not registered", c.Rank(), p)
}

// RegisterSymmetric is like Register, with a guarantee by the caller, which permits algorithms that write into the
// receive memory of peers without a lookup: large messages then go through the GPUs' copy engines.
//
// The caller guarantees: whenever the receive memory of a collective lies in the range on one rank, it lies in the same
// range, at the same offset from p, on every rank. That applies to all_reduce, all_gather, all_to_all, broadcast and
// scatter, eager and in graphs. Send memory may be anywhere, but an all_reduce is in place on all ranks or on none. A
// call that breaks the guarantee returns Mismatch on all ranks, which names two ranks and their offsets, and aborts the
// communicator; other bytes of the ranges may then have been overwritten, but no memory outside of them.
//
// It is collective: every rank gives a range of its own and the same number of bytes. Ranges that overlap do so alike
// on all ranks, or the last one is Unsupported; a call uses the last one that holds its receive memory. The memory must
// stay allocated until Deregister. Windows are symmetric without it, and a range that overlaps one of NewWindow is
// InvalidArgument. For host memory, and in a world of one, there is nothing to do.
func (c *Communicator) RegisterSymmetric(p unsafe.Pointer, bytes int64) error {
	release, err := c.enter("register_symmetric")
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := c.observer.Deadline(c.job.Context)
	defer cancel()
	if _, err := c.endpoints.Symmetric.Register(ctx, c.group, c.endpoints.Buffers, cuda.Ptr(uintptr(p)), bytes,
		false); err != nil {
		return c.observer.WrapError("register_symmetric", err)
	}
	return nil
}
