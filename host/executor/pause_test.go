package executor

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// raise ends what waits waits for, from rank 1's side.
func raise(t testing.TB, w *world) {
	e := w.engines[1]
	p := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() { b.Signal(own(b, 1, 0), b.Const(1), b.Const(0)) })
	})
	must(t, e.Run(p, arguments(nil, nil, 0, 0), testDeadline))
}

func TestARunThatWaitsPauses(t *testing.T) {
	for name, policy := range map[string]Policy{"asleep": {}, "yielding": {Yields: 1 << 30},
		"spinning": {Spins: 2000, Yields: 2000}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2, 8192)
			e := w.engines[0]
			must(t, e.SetFlights(4))
			e.SetPolicy(policy)
			p := waits(t, e)
			e.Record(1, 1, 0, 0, 0, 0, 0)
			begin := time.Now()
			paused, err := e.RunFor(p, arguments(nil, nil, 0, 0), testDeadline, time.Millisecond)
			must(t, err)
			if took := time.Since(begin); !paused || took < time.Millisecond {
				t.Fatalf("paused %v after %v, want it after 1ms", paused, took)
			}
			if e.PeerRecord(0).Ended {
				t.Error("a paused operation counts as ended")
			}
			if err := e.Run(p, arguments(nil, nil, 0, 0), testDeadline); plugin.CodeOf(err) != plugin.Internal {
				t.Errorf("a run beside a paused one: %v", err)
			}
			resumed := make(chan error)
			go func() { resumed <- e.Resume() }()
			waitForWaiting(e)
			raise(t, w)
			must(t, <-resumed)
			if !e.PeerRecord(0).Ended {
				t.Error("the operation has not ended")
			}
			if flights := e.Flights(); len(flights) != 1 || flights[0].End == 0 || flights[0].Failed {
				t.Errorf("flight recorder: %+v", flights)
			}
		})
	}
}

func TestARunThatNeedNotWaitDoesNotPause(t *testing.T) {
	w := newWorld(t, 1, 8192)
	e := w.engines[0]
	p := load(t, e, plugin.Float32, plugin.OpSum, func(b *plugin.Builder) { oneShot(b, 0, 1, 1024) })
	a := arguments(floats(1, 2), make([]byte, 8), 2, 8)
	if n := testing.AllocsPerRun(100, func() {
		if paused, err := e.RunFor(p, a, testDeadline, 1); paused || err != nil {
			t.Fatal(paused, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per run, want 0", n)
	}
}

func TestAPausedRunIsAborted(t *testing.T) {
	w := newWorld(t, 2, 8192)
	e := w.engines[0]
	paused, err := e.RunFor(waits(t, e), arguments(nil, nil, 0, 0), testDeadline, time.Millisecond)
	if !paused || err != nil {
		t.Fatal(paused, err)
	}
	e.Abort(plugin.PeerDied, 1)
	raise(t, w) // too late
	f := failureOf(t, e.Resume())
	if f.Code != plugin.Aborted || f.Cause != plugin.PeerDied || f.Origin != 1 {
		t.Errorf("%+v", f)
	}
}

func TestTheDeadlineOfAPausedRunCountsFromItsStart(t *testing.T) {
	w := newWorld(t, 2, 8192)
	e := w.engines[0]
	const deadline = 500 * time.Millisecond
	begin := time.Now()
	paused, err := e.RunFor(waits(t, e), arguments(nil, nil, 0, 0), deadline, deadline/100)
	if !paused || err != nil {
		t.Fatal(paused, err)
	}
	for time.Since(begin) < deadline {
		waitABit(t)
	}
	resumed := time.Now()
	f := failureOf(t, e.Resume())
	if f.Code != plugin.Timeout || f.Rank != 1 {
		t.Errorf("%+v", f)
	}
	if took := time.Since(resumed); took > 10*time.Second {
		t.Errorf("it took another %v", took)
	}
}

// waitABit lets a millisecond pass in the kernel.
func waitABit(t testing.TB) {
	<-time.After(time.Millisecond)
}

func TestCloseWaitsForAPausedRun(t *testing.T) {
	w := newWorld(t, 2, 8192)
	e := w.engines[0]
	if paused, err := e.RunFor(waits(t, e), arguments(nil, nil, 0, 0), testDeadline, time.Millisecond); !paused ||
		err != nil {
		t.Fatal(paused, err)
	}
	closed := make(chan struct{})
	go func() {
		e.Close()
		close(closed)
	}()
	for e.c.abort == 0 { // Close has raised it; it stays
		waitABit(t)
	}
	select {
	case <-closed:
		t.Fatal("Close has not waited")
	default:
	}
	if f := failureOf(t, e.Resume()); f.Code != plugin.Aborted || f.Cause != plugin.Closed {
		t.Errorf("%+v", f)
	}
	<-closed
}

func TestAGroupPauses(t *testing.T) {
	w := newWorld(t, 2, 8192)
	e := w.engines[0]
	p := waits(t, e)
	group := []Launch{{Program: p, Lane: 0}, {Program: p, Lane: 1}, {Program: p, Lane: 1}}
	for i := range group {
		group[i].Arguments = *arguments(make([]byte, 8), make([]byte, 8), 1, 8)
	}
	paused, err := e.RunGroupFor(group, testDeadline, time.Millisecond)
	if !paused || err != nil {
		t.Fatal(paused, err)
	}
	clear(group) // no longer used
	if err := e.RunGroup(make([]Launch, 1), testDeadline); plugin.CodeOf(err) != plugin.Internal {
		t.Errorf("a group beside a paused one: %v", err)
	}
	raise(t, w)
	must(t, e.Resume())
	must(t, e.RunGroup([]Launch{{Program: p, Arguments: *arguments(nil, nil, 0, 0)}}, testDeadline))
}

// Ranks whose block limit is over at any moment get the same results as ranks without one.
func TestPausingChangesNothing(t *testing.T) {
	const n = 3
	w := newWorld(t, n, 8192)
	var pauses [n]int
	w.run(func(rank int, e *Engine) error {
		e.SetPolicy(Policy{Spins: 10, Yields: 3})
		random := rand.New(rand.NewPCG(uint64(rank), 1))
		p := load(t, e, plugin.Float32, plugin.OpSum, func(b *plugin.Builder) { oneShot(b, rank, n, 1024) })
		for round := range 300 {
			if round%n == rank && round%4 == 0 {
				waitABit(t) // for longer than any block limit
			}
			send, recv := floats(float32(rank+1), float32(round)), make([]byte, 8)
			a := arguments(send, recv, 2, 8)
			var blockLimit time.Duration
			if random.IntN(4) > 0 {
				blockLimit = time.Duration(random.IntN(30000))
			}
			var paused bool
			var err error
			if random.IntN(2) == 0 {
				paused, err = e.RunFor(p, a, testDeadline, blockLimit)
			} else {
				paused, err = e.RunGroupFor([]Launch{{Program: p, Arguments: *a}}, testDeadline, blockLimit)
			}
			if paused && err == nil {
				pauses[rank]++
				ended := make(chan error)
				go func() { ended <- e.Resume() }()
				err = <-ended
			}
			if err != nil {
				return err
			}
			if want := floats(n*(n+1)/2, float32(round*n)); !bytes.Equal(recv, want) {
				return fmt.Errorf("round %d: got %v, want %v", round, recv, want)
			}
		}
		if pauses[rank] == 0 {
			return errors.New("nothing was paused")
		}
		return nil
	})
}
