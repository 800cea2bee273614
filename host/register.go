package host

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Register makes sure that long messages from and to memory of this rank's GPU
// go straight between the ranks' buffers, from the next call on. Without it that
// comes about by itself, some time after the first call that could use it; and a
// buffer that cannot be mapped by peers is staged, which Register reports.
//
// It is collective: every rank registers a buffer of its own. What is mapped is
// the whole allocation; of memory that was made with cuMemCreate, and mapped in
// pieces behind each other, all pieces that hold bytes of the buffer. Memory that is freed is
// forgotten by itself. For host memory there is nothing to do.
func (c *Communicator) Register(p unsafe.Pointer, bytes int64) error {
	if bytes <= 0 || p == nil {
		return c.refusedCall("register", plugin.Errorf(plugin.InvalidArgument, "register on rank %d: %d bytes at %p", c.rank, bytes, p))
	}
	release, err := c.enter("register")
	if err != nil {
		return err
	}
	defer release()
	if c.device == nil {
		return nil
	}
	ctx, cancel := c.deadline(c.job.ctx)
	defer cancel()
	c.registrations++
	tag := fmt.Sprintf("register %s %d", c.label, c.registrations)
	t := c.device.buffers
	at := -1
	if t == nil {
		err = plugin.Errorf(plugin.Unsupported, "no transport moves messages past its staging")
	} else {
		at, err = t.register(cuda.Ptr(uintptr(p)), bytes)
	}
	if err := c.group.Agree(ctx, tag, err); err != nil {
		if at >= 0 {
			_ = t.deregister(at) // the agreed error matters more
		}
		return c.named("register", err)
	}
	if err := c.group.Agree(ctx, tag+" mapped", t.settle(ctx, at)); err != nil {
		_ = t.deregister(at) // likewise
		return c.named("register", err)
	}
	return nil
}

// Deregister undoes one RegisterSymmetric at p, or one Register of the memory at
// p; the last one makes peers unmap it once the operations enqueued so far have
// ended. It is local, but what is symmetric must be so on all ranks or on none:
// they end that between the same two collectives.
//
// Of memory that peers have come to map by themselves it makes them unmap it, and no
// kernel that begins afterwards uses those mappings. A program that maps other memory at
// an address which graphs hold, and replays them, calls it before: what it does not tell is
// found out within a fifth of a second, and until then replays reach the memory that was
// there before.
func (c *Communicator) Deregister(p unsafe.Pointer) error {
	release, err := c.enter("deregister")
	if err != nil {
		return err
	}
	defer release()
	if c.device == nil {
		return nil
	}
	if ok, err := c.deregisterSymmetric(cuda.Ptr(uintptr(p))); ok {
		return err
	}
	if t := c.device.buffers; t != nil {
		t.mu.Lock()
		at := t.registered(cuda.Ptr(uintptr(p)))
		t.mu.Unlock()
		if at >= 0 {
			return t.deregister(at)
		}
		if ended, err := t.endExports(cuda.Ptr(uintptr(p))); ended || err != nil {
			return err
		}
	}
	return plugin.Errorf(plugin.InvalidArgument, "deregister on rank %d: %p is not registered", c.rank, p)
}

// register exports an allocation for a user who asked for it.
func (t *directory) register(p cuda.Ptr, bytes int64) (int, error) {
	at, err := t.add(p, bytes, true)
	if err != nil {
		return -1, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := &t.exports[at]; !e.holds(p, bytes) {
		return -1, plugin.Errorf(plugin.Unsupported, "%d bytes at %#x are not within one allocation, which has %d bytes at %#x", bytes, uint64(p), e.bytes, uint64(e.base))
	}
	t.exports[at].explicit++
	return at, nil
}

// registered is the smallest export that holds an address and that the user has
// asked for; -1 if there is none. Longer ones hold what it holds. t.mu is held.
func (t *directory) registered(p cuda.Ptr) int {
	at := -1
	for i := range t.exports[:t.high] {
		if e := &t.exports[i]; e.explicit > 0 && e.holds(p, 1) && (at < 0 || e.bytes < t.exports[at].bytes) {
			at = i
		}
	}
	return at
}

// endExports withdraws what came to be exported by itself and holds an address.
func (t *directory) endExports(p cuda.Ptr) (ended bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at := t.find(p, 1); at >= 0 && err == nil; at = t.find(p, 1) {
		if t.exports[at].window {
			break
		}
		ended, err = true, t.withdraw(at)
	}
	return ended, err
}

func (t *directory) deregister(at int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &t.exports[at]
	if e.explicit--; e.explicit > 0 || e.window {
		return nil
	}
	return t.withdraw(at)
}

// settle waits until all peers have mapped an export and kernels know it.
func (t *directory) settle(ctx context.Context, at int) error {
	c := t.device.comm
	for {
		t.mu.Lock()
		e := t.exports[at]
		t.mu.Unlock()
		if e.known == t.everyone() {
			return nil
		}
		for rank := range t.pages {
			if rank != c.rank && atomic.LoadUint64(t.pages[rank].mapped(c.rank, at)) == e.generation|cannotMap {
				return plugin.Errorf(plugin.Unsupported, "%s cannot map %d bytes at %#x of rank %d; its log says why", c.peerName(rank), e.bytes, uint64(e.base), c.rank)
			}
		}
		t.hurry()
		select {
		case <-ctx.Done():
			return plugin.Errorf(plugin.Timeout, "peers have not mapped %d bytes at %#x of rank %d within %v", e.bytes, uint64(e.base), c.rank, c.timeout)
		case <-time.After(time.Millisecond):
		}
	}
}
