// Package turn admits one caller at a time to a communicator, and keeps the requests that wait. It knows neither.
package turn

import (
	"sync"
	"sync/atomic"
)

// Turn is held by one caller at a time; R is a request. Taking a free turn and giving it back are one atomic operation
// each; the lock is for callers that have to wait. The zero value is free.
type Turn[R any] struct {
	state atomic.Int32

	mu     sync.Mutex
	idle   *sync.Cond // the turn has become free, or closed; nil until somebody waits
	queue  []R
	closed bool
}

// The states of a turn. It is never free while requests wait.
const (
	free      = iota
	taken     // the holder gives it back by itself
	contended // somebody waits: the holder must look after them
)

// Try takes the turn if it is free.
func (t *Turn[R]) Try() bool { return t.state.CompareAndSwap(free, taken) }

// contend makes the holder look after waiters when it leaves; false: there is
// no holder any more. The caller holds mu, so the holder cannot miss it.
func (t *Turn[R]) contend() bool {
	return t.state.CompareAndSwap(taken, contended) || t.state.Load() == contended
}

// Wait takes the turn as soon as nobody holds it and no request waits. It fails
// with refuse's error once closed.
func (t *Turn[R]) Wait(refuse func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if t.closed {
			return refuse()
		}
		if t.Try() {
			return nil
		}
		if t.contend() {
			if t.idle == nil {
				t.idle = sync.NewCond(&t.mu)
			}
			t.idle.Wait()
		}
	}
}

// Push adds a request behind all others, and reports whether the caller has
// taken the turn for it and must see to it that the queue is worked off.
func (t *Turn[R]) Push(r R, refuse func() error) (start bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false, refuse()
	}
	t.queue = append(t.queue, r)
	for {
		if t.Try() {
			return true, nil
		}
		if t.contend() {
			return false, nil
		}
	}
}

// Pop returns the oldest request, and leaves the turn with its holder; ok is false if there is none, and the turn is
// free then.
func (t *Turn[R]) Pop() (r R, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		t.state.Store(free)
		t.wake()
		return r, false
	}
	r = t.queue[0]
	clear(t.queue[:1])
	t.queue = t.queue[1:]
	return r, true
}

// Leave gives the turn back. It is false when requests wait: then the caller
// still holds it and must see to it that they are popped.
func (t *Turn[R]) Leave() bool {
	if t.state.CompareAndSwap(taken, free) {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) > 0 {
		return false
	}
	t.state.Store(free)
	t.wake()
	return true
}

// Shut waits for its turn and keeps it for good: everybody else is refused.
func (t *Turn[R]) Shut() {
	_ = t.Wait(func() error { return nil }) // closed already: nothing to wait for
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.wake()
}

// Closed reports whether Shut has had its turn.
func (t *Turn[R]) Closed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// Contended reports whether somebody waits for the holder.
func (t *Turn[R]) Contended() bool { return t.state.Load() == contended }

// wake wakes the callers that wait. t.mu is held.
func (t *Turn[R]) wake() {
	if t.idle != nil {
		t.idle.Broadcast()
	}
}
