package buffers

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Register exports what a buffer lies in, and returns when peers have mapped it. It is collective: every rank registers
// a buffer of its own, under one tag. t is nil where no transport moves messages past its staging.
func (t *Registry) Register(ctx context.Context, group Group, tag string, p cuda.Ptr, bytes int64) error {
	at, err := -1, plugin.Errorf(plugin.Unsupported, "no transport moves messages past its staging")
	if t != nil {
		at, err = t.register(p, bytes)
	}
	if err := group.Agree(ctx, tag, err); err != nil {
		if at >= 0 {
			_ = t.deregister(at) // the agreed error matters more
		}
		return err
	}
	if err := group.Agree(ctx, tag+" mapped", t.settle(ctx, at)); err != nil {
		_ = t.deregister(at) // likewise
		return err
	}
	return nil
}

// Deregister undoes one Register of the memory at p, or withdraws what came to be exported by itself there. found is
// false if there is neither.
func (t *Registry) Deregister(p cuda.Ptr) (found bool, err error) {
	if t == nil {
		return false, nil
	}
	t.mu.Lock()
	at := t.registered(p)
	t.mu.Unlock()
	if at >= 0 {
		return true, t.deregister(at)
	}
	return t.endExports(p)
}

// register exports an allocation because its user asked for it.
func (t *Registry) register(p cuda.Ptr, bytes int64) (int, error) {
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

// registered returns the smallest export that holds an address and that the user has
// asked for; -1 if there is none. Longer ones hold what it holds. t.mu is held.
func (t *Registry) registered(p cuda.Ptr) int {
	at := -1
	for i := range t.exports[:t.high] {
		if e := &t.exports[i]; e.explicit > 0 && e.holds(p, 1) && (at < 0 || e.bytes < t.exports[at].bytes) {
			at = i
		}
	}
	return at
}

// endExports withdraws what came to be exported by itself and holds an address.
func (t *Registry) endExports(p cuda.Ptr) (ended bool, err error) {
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

func (t *Registry) deregister(at int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &t.exports[at]
	if e.explicit--; e.explicit > 0 || e.window {
		return nil
	}
	return t.withdraw(at)
}

// settle waits until all peers have mapped an export and kernels know it, or the communicator has failed.
func (t *Registry) settle(ctx context.Context, at int) error {
	for {
		if reason := t.Failure.Reason(); reason != nil { // peers map nothing any more
			return reason
		}
		t.mu.Lock()
		e := t.exports[at]
		t.mu.Unlock()
		if e.known == t.everyone() {
			return nil
		}
		for rank := range t.pages {
			if rank != t.Rank && atomic.LoadUint64(t.pages[rank].mapped(t.Rank, at)) == e.generation|cannotMap {
				return plugin.Errorf(plugin.Unsupported, "%s cannot map %d bytes at %#x of rank %d; its log says why",
					t.PeerName(rank), e.bytes, uint64(e.base), t.Rank)
			}
		}
		t.hurry()
		select {
		case <-ctx.Done():
			return plugin.Errorf(plugin.Timeout, "peers have not mapped %d bytes at %#x of rank %d within %v", e.bytes,
				uint64(e.base), t.Rank, t.Timeout)
		case <-time.After(time.Millisecond):
		}
	}
}

// Export is memory that Announce has exported.
type Export struct {
	at         int
	generation uint64
}

// Announce exports memory that the caller has just made, so that peers map it before it is used; nil where it cannot
// be exported, or need not be. It is local: each peer maps it when it sees it.
func (t *Registry) Announce(p cuda.Ptr, bytes int64) *Export {
	if t == nil || t.World == 1 {
		return nil
	}
	at, err := t.register(p, bytes)
	if err != nil {
		t.Logger.Info("messages from and to a segment are staged", "communicator", t.Label, "rank", t.Rank, "reason", err)
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Export{at, t.exports[at].generation}
}

// Withdraw undoes Announce; nil is no export.
func (t *Registry) Withdraw(e *Export) error {
	if e == nil {
		return nil
	}
	t.mu.Lock()
	same := t.exports[e.at].bytes > 0 && t.exports[e.at].generation == e.generation
	t.mu.Unlock()
	if !same {
		return nil // it has gone by itself
	}
	return t.deregister(e.at)
}
