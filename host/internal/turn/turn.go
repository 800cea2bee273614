// Package turn admits one caller at a time to a communicator, and has the requests that wait performed. It knows
// neither.
package turn

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/shunt-ccl/shunt/host/internal/lockorder"
)

// Turn is held by one caller at a time; R is a request. Taking a free turn and giving it back are one atomic operation
// each; the lock is for callers that have to wait. It is free at first.
type Turn[R any] struct {
	state atomic.Int32

	Perform func(R)                 // takes a request to its end, in a goroutine that holds the turn
	Refuse  func(what string) error // returns the error of a call that comes once the turn is closed

	mu     sync.Mutex
	idle   *sync.Cond // the turn has become free, or closed; nil until a caller waits
	queue  []R
	closed bool
}

// The states of a turn. It is never free while requests wait.
const (
	free      = iota
	taken     // the holder gives it back by itself
	contended // others wait: the holder must serve or wake them
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

// Wait takes the turn, on the caller's thread, as soon as it is free and no request waits. It is for a call, which
// is refused once the turn is closed.
func (t *Turn[R]) Wait(what string) error {
	_, err := t.waitUntil(nil, what)
	return err
}

// WaitContext is Wait of a call that gives up when its context ends: it returns the context's error then. A turn that
// is free it takes all the same.
func (t *Turn[R]) WaitContext(ctx context.Context, what string) error {
	stop := context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.wake()
	})
	defer stop()
	ended, err := t.waitUntil(ctx.Done(), what)
	if ended {
		return ctx.Err()
	}
	return err
}

func (t *Turn[R]) waitUntil(end <-chan struct{}, what string) (ended bool, err error) {
	lockorder.Take(lockorder.Turn)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wait(end) {
		return false, nil
	}
	lockorder.Drop(lockorder.Turn)
	if t.closed {
		return false, t.Refuse(what)
	}
	return true, nil
}

// wait takes the turn, unless it is closed, or not free before the end. t.mu is held.
func (t *Turn[R]) wait(end <-chan struct{}) bool {
	for !t.closed {
		if t.state.CompareAndSwap(free, taken) {
			return true
		}
		select {
		case <-end:
			return false
		default:
		}
		if t.contend() {
			if t.idle == nil {
				t.idle = sync.NewCond(&t.mu)
			}
			t.idle.Wait()
		}
	}
	return false
}

// Push adds a request of a call behind all others, unless the turn is closed.
func (t *Turn[R]) Push(what string, r R) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return t.Refuse(what)
	}
	t.queue = append(t.queue, r)
	for {
		if t.state.CompareAndSwap(free, taken) {
			t.handOver(func() {})
			return nil
		}
		if t.contend() {
			return nil
		}
	}
}

// pop returns the oldest request, and leaves the turn with its holder; ok is false if there is none, and the turn is
// free then.
func (t *Turn[R]) pop() (r R, ok bool) {
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

// Leave gives the turn back, to the oldest waiting request if there is one.
func (t *Turn[R]) Leave() {
	lockorder.Drop(lockorder.Turn)
	if !t.state.CompareAndSwap(taken, free) {
		t.leave()
	}
}

func (t *Turn[R]) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) > 0 {
		t.handOver(func() {})
		return
	}
	t.state.Store(free)
	t.wake()
}

// HandOver gives the turn to a goroutine, which calls first and then performs the requests that wait.
func (t *Turn[R]) HandOver(first func()) {
	lockorder.Drop(lockorder.Turn)
	t.handOver(first)
}

func (t *Turn[R]) handOver(first func()) {
	go func() {
		lockorder.Take(lockorder.Turn)
		defer lockorder.Drop(lockorder.Turn)
		first()
		for r, ok := t.pop(); ok; r, ok = t.pop() {
			t.Perform(r)
		}
	}()
}

// Shut waits for its turn and keeps it for good: all other callers get an error.
func (t *Turn[R]) Shut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wait(nil) // closed already: nothing to wait for
	t.closed = true
	t.wake()
}

// Closed reports whether Shut has had its turn.
func (t *Turn[R]) Closed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// Contended reports whether a caller or a request waits for the holder.
func (t *Turn[R]) Contended() bool { return t.state.Load() == contended }

// wake wakes the callers that wait. t.mu is held.
func (t *Turn[R]) wake() {
	if t.idle != nil {
		t.idle.Broadcast()
	}
}
