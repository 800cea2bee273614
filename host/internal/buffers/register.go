package buffers

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Register exports what a buffer lies in, and returns when peers have mapped it. It is collective: every rank registers
// a buffer of its own, under one tag. t is nil where no transport moves messages past its staging.
func (t *Registry) Register(ctx context.Context, group Group, tag string, p cuda.Ptr, bytes int64) error {
	var e *Export
	err := plugin.Errorf(plugin.Unsupported, "no transport moves messages past its staging")
	if t != nil {
		e, err = t.register(p, bytes)
	}
	if err := group.Agree(ctx, tag, err); err != nil {
		_ = t.Withdraw(e) // the agreed error matters more
		return err
	}
	if err := group.Agree(ctx, tag+" mapped", t.settle(ctx, e)); err != nil {
		_ = t.Withdraw(e) // likewise
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
	e := t.registered(p)
	t.mu.Unlock()
	if e != nil {
		return true, t.Withdraw(e)
	}
	return t.endExports(p)
}

// Export is memory that this rank has exported because its user or its maker asked for it.
type Export struct {
	at         int
	generation uint64
	base       cuda.Ptr // as it was registered
}

// register exports an allocation because its user asked for it.
func (t *Registry) register(p cuda.Ptr, bytes int64) (*Export, error) {
	at, err := t.add(p, bytes)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &t.exports[at]
	if !e.holds(p, bytes) {
		return nil, plugin.Errorf(plugin.Unsupported, "%d bytes at %#x are not within one allocation, which has %d bytes at %#x", bytes, uint64(p), e.bytes, uint64(e.base))
	}
	e.explicit = append(e.explicit, p)
	return &Export{at, e.generation, p}, nil
}

// registered returns a registration of the user's that begins at an address, or else one whose export holds it; nil if
// there is none. Of several it is in the smallest export: longer ones hold what that holds. t.mu is held.
func (t *Registry) registered(p cuda.Ptr) (found *Export) {
	bytes, exact := int64(0), false
	for i := range t.exports[:t.high] {
		e := &t.exports[i]
		if len(e.explicit) == 0 || !e.holds(p, 1) {
			continue
		}
		begins := slices.Contains(e.explicit, p)
		if found != nil && (exact && !begins || exact == begins && e.bytes >= bytes) {
			continue
		}
		found, bytes, exact = &Export{i, e.generation, p}, e.bytes, begins
	}
	return found
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

// Withdraw undoes Announce, or one register; nil is no export.
func (t *Registry) Withdraw(x *Export) error {
	if x == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.is(x) {
		return nil // it has gone by itself
	}
	e := &t.exports[x.at]
	at := max(slices.Index(e.explicit, x.base), 0)
	if e.explicit = slices.Delete(e.explicit, at, at+1); len(e.explicit) > 0 || e.window {
		return nil
	}
	return t.withdraw(x.at)
}

// is reports whether an export is still in its place, and not on its way out. t.mu is held.
func (t *Registry) is(x *Export) bool {
	e := &t.exports[x.at]
	return e.bytes > 0 && e.generation == x.generation && e.leaving == staying
}

// settle waits until all peers have mapped an export and kernels know it, the export has gone, or the communicator has
// failed. It leaves a quarter of the time to agree on a failure before the caller's deadline.
func (t *Registry) settle(ctx context.Context, x *Export) error {
	limit := t.Timeout()
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
	}
	limit = limit / 4 * 3
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t.settles(x, 1)
	defer t.settles(x, -1)
	for {
		if reason := t.Failure.Reason(); reason != nil { // peers map nothing any more
			return reason
		}
		t.mu.Lock()
		e, is := t.exports[x.at], t.is(x)
		t.mu.Unlock()
		if !is {
			return plugin.Errorf(plugin.InvalidArgument, "memory at %#x of rank %d was freed while it was registered",
				uint64(x.base), t.Rank)
		}
		if e.known == t.everyone() {
			return nil
		}
		for rank := range t.pages {
			if rank != t.Rank && atomic.LoadUint64(t.pages[rank].mapped(t.Rank, x.at)) == e.generation|cannotMap {
				return plugin.Errorf(plugin.Unsupported, "%s cannot map %d bytes at %#x of rank %d; its log says why",
					t.PeerName(rank), e.bytes, uint64(e.base), t.Rank)
			}
		}
		t.hurry()
		select {
		case <-ctx.Done():
			return plugin.Errorf(plugin.Timeout, "peers have not mapped %d bytes at %#x of rank %d within %v", e.bytes,
				uint64(e.base), t.Rank, limit.Round(time.Millisecond))
		case <-time.After(time.Millisecond):
		}
	}
}

// settles counts the calls that wait for an export, which stays shared for as long: it is they who report that peers
// are slow.
func (t *Registry) settles(x *Export, more int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.is(x) {
		t.exports[x.at].settling += more
	}
}

// Announce exports memory that the caller has just made, so that peers map it before it is used; nil where it cannot
// be exported, or need not be. It is local: each peer maps it when it sees it.
func (t *Registry) Announce(p cuda.Ptr, bytes int64) *Export {
	if t == nil || t.World == 1 {
		return nil
	}
	e, err := t.register(p, bytes)
	if err != nil {
		t.Logger.Info("messages from and to a segment are staged", "communicator", t.Label, "rank", t.Rank, "reason", err)
		return nil
	}
	return e
}
