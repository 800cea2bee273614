package host

import (
	"sync"
	"sync/atomic"
)

// turn admits one caller at a time to a communicator and keeps the requests
// that wait. Taking a free turn and giving it back are one atomic operation
// each; the lock is for callers that have to wait.
type turn struct {
	state atomic.Int32

	mu     sync.Mutex
	idle   sync.Cond // the turn has become free, or closed
	queue  []*Request
	closed bool
}

// The states of a turn. It is never free while requests wait.
const (
	free      = iota
	taken     // the holder gives it back by itself
	contended // somebody waits: the holder must look after them
)

// try takes the turn if it is free.
func (t *turn) try() bool { return t.state.CompareAndSwap(free, taken) }

// contend makes the holder look after waiters when it leaves; false: there is
// no holder any more. The caller holds mu, so the holder cannot miss it.
func (t *turn) contend() bool {
	return t.state.CompareAndSwap(taken, contended) || t.state.Load() == contended
}

// wait takes the turn as soon as nobody holds it and no request waits. It fails
// with refuse's error once closed.
func (t *turn) wait(refuse func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if t.closed {
			return refuse()
		}
		if t.try() {
			return nil
		}
		if t.contend() {
			t.idle.Wait()
		}
	}
}

// push adds a request behind all others, and reports whether the caller has
// taken the turn for it and must see to it that the queue is worked off.
func (t *turn) push(r *Request, refuse func() error) (start bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false, refuse()
	}
	t.queue = append(t.queue, r)
	for {
		if t.try() {
			return true, nil
		}
		if t.contend() {
			return false, nil
		}
	}
}

// pop hands the holder the oldest request, or takes the turn from it.
func (t *turn) pop() *Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		t.state.Store(free)
		t.idle.Broadcast()
		return nil
	}
	r := t.queue[0]
	t.queue[0] = nil
	t.queue = t.queue[1:]
	return r
}

// leave gives the turn back. It is false when requests wait: then the caller
// still holds it and must see to it that they are popped.
func (t *turn) leave() bool {
	if t.state.CompareAndSwap(taken, free) {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) > 0 {
		return false
	}
	t.state.Store(free)
	t.idle.Broadcast()
	return true
}

// shut waits for its turn and keeps it for good: everybody else is refused.
func (t *turn) shut() {
	_ = t.wait(func() error { return nil }) // closed already: nothing to wait for
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.idle.Broadcast()
}
