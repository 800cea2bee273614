package turn

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/internal/lockorder"
)

func refuse(what string) error { return errors.New(what + ": closed") }

// Whatever mixes: one holds the turn at a time, and every request is performed once, in the order in which it came.
func TestOneHolderAtATime(t *testing.T) {
	t.Cleanup(lockorder.Check(func(text string) { t.Error(text) }))
	const callers, each = 8, 200
	held, performed := 0, []int(nil) // guarded by the turn; the race detector and the count say so
	var all sync.WaitGroup
	turn := Turn[int]{Refuse: refuse, Perform: func(r int) {
		performed = append(performed, r)
		all.Done()
	}}
	all.Add(callers / 2 * each) // the requests
	for caller := range callers {
		all.Go(func() {
			for i := range each {
				if caller%2 == 1 {
					if err := turn.Push("push", caller*each+i); err != nil {
						t.Error(err)
					}
					continue
				}
				if err := turn.Wait("wait"); err != nil {
					t.Error(err)
				}
				held++
				if i%2 == 0 {
					turn.Leave()
					continue
				}
				turn.HandOver(func() { held++ })
			}
		})
	}
	all.Wait()
	require.NoError(t, turn.Wait("the last"), "it is free in the end")
	require.Equal(t, callers/2*each*3/2, held)
	require.Len(t, performed, callers/2*each)
	last := map[int]int{}
	for _, r := range performed {
		require.GreaterOrEqual(t, r%each, last[r/each], "requests of caller %d", r/each)
		last[r/each] = r % each
	}
}

// Shut waits for the holder and for the requests before it; callers that wait, or come later, are rejected.
func TestShut(t *testing.T) {
	performed := []int(nil)
	turn := Turn[int]{Refuse: refuse, Perform: func(r int) { performed = append(performed, r) }}
	require.True(t, turn.Try())
	require.NoError(t, turn.Push("push", 7))
	require.True(t, turn.Contended())
	require.Empty(t, performed, "the holder looks after it")
	shut := make(chan struct{})
	go func() {
		turn.Shut()
		close(shut)
	}()
	turn.Leave()
	<-shut
	require.Equal(t, []int{7}, performed)
	require.True(t, turn.Closed())
	require.False(t, turn.Try())
	require.EqualError(t, turn.Wait("barrier"), "barrier: closed")
	require.EqualError(t, turn.Push("send", 8), "send: closed")
	turn.Shut()
}

// Callers that came before Shut have the turn before it. Those that come while it waits are rejected, another Shut only
// waits, and all have left no lock noted as held.
func TestCallersBesideShut(t *testing.T) {
	t.Cleanup(lockorder.Check(func(text string) { t.Error(text) }))
	for _, callers := range []int{1, 5} {
		turn := Turn[int]{Refuse: refuse}
		waiting := func() int {
			turn.mu.Lock()
			defer turn.mu.Unlock()
			return len(turn.queue)
		}
		require.True(t, turn.Try())
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				if err := turn.Wait("wait"); err != nil {
					t.Error(err)
					return
				}
				if turn.Closed() {
					t.Error("a caller has a turn that is closed")
				}
				turn.Leave()
			})
		}
		require.Eventually(t, func() bool { return waiting() == callers }, 30*time.Second, time.Millisecond)
		all.Go(turn.Shut)
		require.Eventually(t, func() bool { return waiting() == callers+1 }, 30*time.Second, time.Millisecond)
		require.EqualError(t, turn.Push("push", 1), "push: closed")
		late := make(chan error, callers)
		for range callers {
			all.Go(func() { late <- turn.Wait("late") })
		}
		all.Go(turn.Shut)
		require.Eventually(t, func() bool { return waiting() == 2*callers+2 }, 30*time.Second, time.Millisecond)
		require.False(t, turn.Closed())
		turn.Leave()
		for range callers {
			require.EqualError(t, <-late, "late: closed")
		}
		all.Wait()
		require.True(t, turn.Closed())
		require.Zero(t, lockorder.Held())
	}
}

// Callers that wait get the turn in the order in which they came, between the requests, however many come behind them.
func TestNoOvertaking(t *testing.T) {
	t.Cleanup(lockorder.Check(func(text string) { t.Error(text) }))
	turn := Turn[chan struct{}]{Refuse: refuse, Perform: func(r chan struct{}) {
		time.Sleep(time.Millisecond) // a request takes some time, in which the other caller's is pushed
		close(r)
	}}
	var load sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r := make(chan struct{})
				if turn.Push("push", r) != nil {
					return // closed
				}
				<-r
			}
		})
	}
	for _, call := range []func(){
		func() {
			if err := turn.Wait("wait"); err != nil {
				t.Error(err)
			}
			turn.Leave()
		},
		func() {
			if err := turn.WaitContext(t.Context(), "wait", func() {}); err != nil {
				t.Error(err)
			}
			turn.HandOver(func() {})
		},
		turn.Shut,
	} {
		returned := make(chan struct{})
		require.Eventually(t, turn.Contended, 30*time.Second, time.Microsecond)
		go func() {
			call()
			close(returned)
		}()
		select {
		case <-returned:
		case <-time.After(30 * time.Second):
			t.Error("calls that came later have the turn all the time")
			close(stop)
			load.Wait()
			<-returned
			return
		}
	}
	load.Wait()
}

// A call whose context ends while another has the turn gives up, and leaves the turn to those behind it; a turn that is
// free or closed it gets or is refused as without.
func TestWaitEndsWithItsContext(t *testing.T) {
	t.Cleanup(lockorder.Check(func(text string) { t.Error(text) }))
	turn := Turn[int]{Refuse: refuse}
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, turn.WaitContext(ctx, "first", func() {}))
	given := make(chan error, 1)
	go func() { given <- turn.WaitContext(ctx, "second", func() {}) }()
	require.Eventually(t, turn.Contended, 30*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-given, context.Canceled)
	require.ErrorIs(t, turn.WaitContext(ctx, "third", func() {}), context.Canceled, "the first has it")
	next := make(chan error, 1)
	go func() {
		err := turn.WaitContext(t.Context(), "fourth", func() {})
		turn.Leave()
		next <- err
	}()
	turn.Leave()
	require.NoError(t, <-next)
	require.NoError(t, turn.WaitContext(ctx, "fifth", func() {}), "it is free")
	turn.Leave()
	turn.Shut()
	require.EqualError(t, turn.WaitContext(ctx, "sixth", func() {}), "sixth: closed")
}

// Calls that are numbered as they come have their turns in the order of their numbers: other ranks meet them by these.
func TestNumbersAreInTheOrderOfTurns(t *testing.T) {
	turn := &Turn[int]{Perform: func(int) {}, Refuse: refuse}
	var last int
	var order []int
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 200 {
				mine := 0
				if err := turn.WaitContext(t.Context(), "call", func() {
					last++
					mine = last
					runtime.Gosched() // others come now
				}); err != nil {
					t.Error(err)
					return
				}
				order = append(order, mine)
				turn.Leave()
			}
		})
	}
	group.Wait()
	require.Len(t, order, 1600)
	require.IsIncreasing(t, order)
}
