package executor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/internal/affinity"
	"github.com/shunt-ccl/shunt/plugin"
)

// waitForWaiting returns once the engine's run waits.
func waitForWaiting(e *Engine) (rank, step int) {
	for {
		if waiting, rank, _, step := e.Waiting(); waiting {
			return rank, step
		}
		runtime.Gosched()
	}
}

// waits loads a program that waits for rank 1 to raise the word at offset 0
// of its region.
func waits(t testing.TB, e *Engine) *Program {
	return load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() {
			b.Load(own(b, 1, 0))
			b.Wait(own(b, 1, 0), b.Const(1), b.Const(1))
		})
	})
}

// onlySleep makes an engine sleep at once and for so long that a lost
// wake-up shows as a timeout.
func onlySleep(e *Engine) {
	e.SetPolicy(Policy{})
	e.c.policy.slice_usec = 3600 * 1000000
}

// TestNoWakeUpIsLost plays ping-pong between sleepers. A wake-up that came
// between the last look and the sleep, and was lost, ends in a timeout: so it
// does when the sleeper does not look again after raising its flag. Words on
// many lines are written before each signal and read by the peer, so that the
// semaphore queues behind them in the store buffer.
func TestNoWakeUpIsLost(t *testing.T) {
	const rounds, runs, lines = 500, 10, 16
	w := newWorld(t, 2, 8192)
	for _, e := range w.engines {
		onlySleep(e)
	}
	w.run(func(rank int, e *Engine) error {
		// A processor each, or the kernel puts both on one, where they cannot
		// race. The goroutine ends locked, and its thread with it.
		runtime.LockOSThread()
		pin(t, rank)
		p := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
			b.Track(func() {
				b.Loop(b.Const(rounds), func(i plugin.Reg) {
					next := b.Add(b.Slot(plugin.SlotOffset), b.Add(i, b.Const(1)))
					peer := b.Const(int64(1 - rank))
					// A varying delay moves the signal over the peer's last look.
					b.Loop(b.Mod(b.Mul(i, b.Const(7)), b.Const(64)), func(k plugin.Reg) { b.Mul(k, k) })
					write := func() {
						for line := range int64(lines) {
							b.Store(own(b, rank, 1024+64*line), next)
						}
						b.Signal(own(b, rank, 0), next, peer)
					}
					read := func() {
						b.Wait(own(b, 1-rank, 0), next, peer)
						for line := range int64(lines) {
							b.Load(own(b, 1-rank, 1024+64*line))
						}
					}
					if rank == 0 {
						write()
						read()
					} else {
						read()
						write()
					}
				})
			})
		})
		a := arguments(nil, nil, 0, 0)
		for run := range int64(runs) {
			a.Slots[plugin.SlotOffset] = run * rounds
			if err := e.Run(p, a, testDeadline); err != nil {
				return err
			}
		}
		return nil
	})
}

// pin binds this thread to the i-th processor that it may use, if there is one.
func pin(t testing.TB, i int) {
	allowed, err := affinity.Get()
	must(t, err)
	if i < len(allowed) {
		must(t, affinity.Set(allowed[i:i+1]))
	}
}

// TestTheLastSignalOfARunRings signals a sleeper and ends: nothing after the
// signal would ring late.
func TestTheLastSignalOfARunRings(t *testing.T) {
	for _, all := range []bool{false, true} {
		w := newWorld(t, 2, 8192)
		onlySleep(w.engines[0])
		done := make(chan error)
		p := waits(t, w.engines[0])
		go func() { done <- w.engines[0].Run(p, arguments(nil, nil, 0, 0), testDeadline) }()
		waitForWaiting(w.engines[0])
		signal := load(t, w.engines[1], plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
			b.Track(func() {
				if all {
					b.SignalAll(own(b, 1, 0), b.Const(1))
				} else {
					b.Signal(own(b, 1, 0), b.Const(1), b.Const(0))
				}
			})
		})
		must(t, w.engines[1].Run(signal, arguments(nil, nil, 0, 0), testDeadline))
		must(t, <-done)
	}
}

func TestAbortWakesASleeper(t *testing.T) {
	w := newWorld(t, 2, 8192)
	e := w.engines[0]
	onlySleep(e)
	p := waits(t, e)
	done := make(chan error)
	go func() { done <- e.Run(p, arguments(nil, nil, 0, 0), 0) }()
	if rank, step := waitForWaiting(e); rank != 1 || step != 1 {
		t.Errorf("waits for rank %d at step %d, want rank 1 at step 1", rank, step)
	}
	e.Abort(plugin.PeerDied, 1)
	e.Abort(plugin.Closed, 0) // comes too late to matter
	for _, err := range []error{<-done, e.Run(p, arguments(nil, nil, 0, 0), 0)} {
		f := failureOf(t, err)
		if !errors.Is(err, plugin.Aborted) || !errors.Is(err, plugin.PeerDied) || f.Cause != plugin.PeerDied ||
			f.Origin != 1 {
			t.Errorf("got %v (%+v)", err, f)
		}
	}
	if waiting, _, _, _ := e.Waiting(); waiting {
		t.Error("still waiting after the run")
	}
}

func TestTimeoutNamesRankAndStep(t *testing.T) {
	for _, policy := range []Policy{{}, {Spins: 100}, {Yields: 1 << 30}, {Spins: 10, Yields: 10}} {
		w := newWorld(t, 2, 8192)
		e := w.engines[0]
		e.SetPolicy(policy)
		start := time.Now()
		err := e.Run(waits(t, e), arguments(nil, nil, 0, 0), 30*time.Millisecond)
		f := failureOf(t, err)
		if !errors.Is(err, plugin.Timeout) || f.Rank != 1 || f.Step != 1 || f.Track != 0 {
			t.Errorf("%+v: got %v (%+v)", policy, err, f)
		}
		if took := time.Since(start); took < 30*time.Millisecond || took > 5*time.Second {
			t.Errorf("%+v: took %v", policy, took)
		}
		// The engine works on.
		setWord(w.regions[1], 0, 1)
		must(t, e.Run(waits(t, e), arguments(nil, nil, 0, 0), testDeadline))
	}
}

func TestASecondRunIsRefused(t *testing.T) {
	w := newWorld(t, 2, 8192)
	e := w.engines[0]
	p := waits(t, e)
	done := make(chan error)
	go func() { done <- e.Run(p, arguments(nil, nil, 0, 0), testDeadline) }()
	waitForWaiting(e)
	if err := e.Run(p, arguments(nil, nil, 0, 0), testDeadline); plugin.CodeOf(err) != plugin.Internal {
		t.Errorf("second run: %v", err)
	}
	if err := e.RunGroup([]Launch{{Program: p}}, testDeadline); plugin.CodeOf(err) != plugin.Internal {
		t.Errorf("second group: %v", err)
	}
	e.Abort(plugin.Aborted, -1)
	if err := <-done; !errors.Is(err, plugin.Aborted) {
		t.Error(err)
	}
}

func TestCloseEndsTheRunInFlight(t *testing.T) {
	w := newWorld(t, 2, 8192)
	e := w.engines[0]
	p := waits(t, e)
	done := make(chan error)
	go func() { done <- e.Run(p, arguments(nil, nil, 0, 0), 0) }()
	waitForWaiting(e)
	e.Close()
	if err := <-done; !errors.Is(err, plugin.Closed) {
		t.Errorf("the run in flight: %v", err)
	}
	e.Close()
	e.Abort(plugin.PeerDied, 1)
	e.ClearRegion(0, 0)
	for _, err := range []error{
		e.Run(p, arguments(nil, nil, 0, 0), 0), e.RunGroup([]Launch{{Program: p}}, 0),
		e.SetControl(0, Memory{}), e.SetRegion(0, 0, 0, Memory{}),
	} {
		if !errors.Is(err, plugin.Closed) {
			t.Errorf("after Close: %v", err)
		}
	}
	if e.PeerRecord(1).Valid {
		t.Error("a record after Close")
	}
}

func TestRecordsReachPeers(t *testing.T) {
	w := newWorld(t, 2, 8192)
	reader := w.engines[0]
	if r := reader.PeerRecord(1); r.Valid {
		t.Errorf("a record before the first run: %+v", r)
	}
	e := w.engines[1]
	empty := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) { b.Track(func() {}) })
	e.Record(7, 7, uint32(plugin.Broadcast), uint32(plugin.Bfloat16), uint32(plugin.OpMax), 1<<40, -3)
	must(t, e.Run(empty, arguments(nil, nil, 0, 0), 0))
	want := Record{Valid: true, Ended: true, Seq: 7, Collective: plugin.Broadcast, DType: plugin.Bfloat16,
		Op: plugin.OpMax, Count: 1 << 40, Root: -3}
	if got := reader.PeerRecord(1); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}

	waiter := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() { b.Wait(own(b, 0, 0), b.Const(1), b.Const(0)) })
	})
	e.Record(8, 8, uint32(plugin.AllGather), 1, 2, 3, 4)
	done := make(chan error)
	go func() { done <- e.Run(waiter, arguments(nil, nil, 0, 0), testDeadline) }()
	waitForWaiting(e)
	want = Record{Valid: true, Seq: 8, Collective: plugin.AllGather, DType: 1, Op: 2, Count: 3, Root: 4}
	if got := reader.PeerRecord(1); got != want {
		t.Errorf("in flight: got %+v, want %+v", got, want)
	}
	e.Abort(plugin.Aborted, -1)
	<-done
	for _, rank := range []int{-1, 2} {
		if reader.PeerRecord(rank).Valid {
			t.Errorf("a record of rank %d", rank)
		}
	}
}

func TestAHostileControlPageOnlyMisleads(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	w := newWorld(t, 2, 8192)
	page := mapped(t, memfd(t, ControlBytes), ControlBytes)
	must(t, w.engines[0].SetControl(1, memory(page)))
	for range 1000 {
		for i := range page {
			page[i] = byte(rng.Uint32())
		}
		version := page[128] // first byte of the record's version
		if got := w.engines[0].PeerRecord(1); got.Valid != (version%2 == 0) {
			t.Fatalf("version byte %#x: %+v", version, got)
		}
	}
	// Signals look at the page too.
	p := load(t, w.engines[0], plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() { b.SignalAll(own(b, 0, 0), b.Const(1)) })
	})
	must(t, w.engines[0].Run(p, arguments(nil, nil, 0, 0), testDeadline))
}

// TestOversubscribedWorldsMakeProgress runs more ranks than processors.
func TestOversubscribedWorldsMakeProgress(t *testing.T) {
	n := 2*runtime.NumCPU() + 1
	w := newWorld(t, n, 8192)
	w.run(func(rank int, e *Engine) error {
		p := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
			b.Track(func() {
				b.Loop(b.Const(300), func(plugin.Reg) { b.Barrier(own(b, rank, 64), own(b, rank, 0)) })
			})
		})
		if err := e.Run(p, arguments(nil, nil, 0, 0), testDeadline); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		return nil
	})
}

// The number of Go's processors is the program's: a rank bound to one CPU keeps its one.
func TestEnginesLeaveTheProcessorsAlone(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	e, err := NewEngine(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d processors, want the program's 1", n)
	}
	e.Close()
}
