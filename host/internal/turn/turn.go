// Package turn admits one caller at a time to a communicator, and has the requests that wait performed. It knows
// neither.
package turn

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/shunt-ccl/shunt/host/internal/lockorder"
)

// Turn is held by one caller at a time; R is a request. Taking a free turn and giving it back are one atomic operation
// each; the lock is for callers that have to wait. It is free at first.
type Turn[R any] struct {
	state atomic.Int32

	Perform func(R)                 // takes a request to its end, in a goroutine that holds the turn
	Refuse  func(what string) error // returns the error of a call that comes once Shut was called

	mu      sync.Mutex
	queue   []entry[R] // in the order in which they came: whoever has the turn gives it to the first
	closing bool       // Shut was called; behind it only callers wait
	closed  bool       // it has had its turn
}

// entry is what waits for a turn: a request, or a caller, which gets it where granted is closed.
type entry[R any] struct {
	request R
	granted chan struct{} // nil: a request
}

// The states of a turn. It is never free while others wait.
const (
	free      = iota
	taken     // the holder gives it back by itself
	contended // others wait: the holder must serve them
)

// Try takes the turn if it is free.
func (t *Turn[R]) Try() bool {
	if !t.state.CompareAndSwap(free, taken) {
		return false
	}
	lockorder.Take(lockorder.Turn)
	return true
}

// contend makes the holder look after waiters when it leaves; false: there is
// no holder any more. The caller holds mu, so the holder cannot miss it.
func (t *Turn[R]) contend() bool {
	return t.state.CompareAndSwap(taken, contended) || t.state.Load() == contended
}

// Wait takes the turn, on the caller's thread, after all that came before. It is for a call, which is refused once the
// turn is closed.
func (t *Turn[R]) Wait(what string) error {
	return t.WaitContext(context.Background(), what, func() {})
}

// WaitContext is Wait of a call that gives up when its context ends: it returns the context's error then. A turn that
// is free it takes all the same. came is called as the call gets its place: those of several calls in the order in
// which they have their turns.
func (t *Turn[R]) WaitContext(ctx context.Context, what string, came func()) error {
	lockorder.Take(lockorder.Turn)
	t.mu.Lock()
	defer t.mu.Unlock()
	came()
	if !t.closed && t.wait(ctx.Done()) && !t.closed {
		return nil
	}
	lockorder.Drop(lockorder.Turn)
	if t.closed {
		return t.Refuse(what)
	}
	return ctx.Err()
}

// wait takes the turn, or sees it closed, unless the end comes first. t.mu is held, but not while it waits.
func (t *Turn[R]) wait(end <-chan struct{}) bool {
	granted := make(chan struct{})
	if t.enqueue(entry[R]{granted: granted}) {
		return true
	}
	t.mu.Unlock()
	select {
	case <-granted:
	case <-end:
	}
	t.mu.Lock()
	i := slices.IndexFunc(t.queue, func(e entry[R]) bool { return e.granted == granted })
	if i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
	}
	return i < 0
}

// enqueue takes the turn if it is free, or puts an entry behind all others. t.mu is held.
func (t *Turn[R]) enqueue(e entry[R]) (took bool) {
	for !t.contend() {
		if t.state.CompareAndSwap(free, taken) {
			return true
		}
	}
	t.queue = append(t.queue, e)
	return false
}

// Push adds a request of a call behind all others, unless Shut was called.
func (t *Turn[R]) Push(what string, r R) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closing {
		return t.Refuse(what)
	}
	if t.enqueue(entry[R]{request: r}) {
		t.handOver(func() { t.Perform(r) })
	}
	return nil
}

// pop gives the turn to the first in the queue. A request it returns, and leaves the turn with its holder; ok is false
// if the turn is a waiting caller's now, or free. t.mu is held.
func (t *Turn[R]) pop() (r R, ok bool) {
	if len(t.queue) == 0 {
		t.state.Store(free)
		return r, false
	}
	first := t.queue[0]
	clear(t.queue[:1])
	t.queue = t.queue[1:]
	if first.granted != nil {
		close(first.granted)
		return r, false
	}
	return first.request, true
}

// Leave gives the turn back, to the first in the queue if there is one.
func (t *Turn[R]) Leave() {
	lockorder.Drop(lockorder.Turn)
	if !t.state.CompareAndSwap(taken, free) {
		t.leave()
	}
}

func (t *Turn[R]) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r, ok := t.pop(); ok {
		t.handOver(func() { t.Perform(r) })
	}
}

// HandOver gives the turn to a goroutine, which calls first and then performs the requests that are next.
func (t *Turn[R]) HandOver(first func()) {
	lockorder.Drop(lockorder.Turn)
	t.handOver(first)
}

func (t *Turn[R]) handOver(first func()) {
	go func() {
		lockorder.Take(lockorder.Turn)
		defer lockorder.Drop(lockorder.Turn)
		first()
		for r, ok := t.next(); ok; r, ok = t.next() {
			t.Perform(r)
		}
	}()
}

// next is pop without the lock held.
func (t *Turn[R]) next() (r R, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pop()
}

// Shut waits for its turn and keeps it for good: calls that came after it get an error.
func (t *Turn[R]) Shut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closing = true
	t.wait(nil)
	t.closed = true
	for _, e := range t.queue {
		close(e.granted)
	}
	t.queue = nil
}

// Closed reports whether Shut has had its turn.
func (t *Turn[R]) Closed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// Contended reports whether a caller or a request has come while the holder has the turn.
func (t *Turn[R]) Contended() bool { return t.state.Load() == contended }
