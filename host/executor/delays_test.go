package executor

import (
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// late sets the same delays on every rank.
func late(t testing.TB, w *world, text string) {
	t.Helper()
	d, err := ParseDelays(text)
	must(t, err)
	for _, e := range w.engines {
		must(t, e.SetDelays(d))
	}
}

// delaysOf returns how often an engine's runs were delayed.
func delaysOf(e *Engine) uint64 { return atomic.LoadUint64((*uint64)(&e.c.delays.count)) }

// racing returns a plan that breaks a rule: rank 0 writes 1 into a slot, signals, and
// writes 2 there before rank 1 can have read it. Both meet at the end.
func racing(t testing.TB, e *Engine) *Program {
	return load(t, e, plugin.Int64, plugin.OpSum, func(b *plugin.Builder) {
		const told, slot, semaphore, counter = 0, 64, 128, 192
		b.Track(func() {
			epoch := b.Add(b.Load(own(b, e.rank, counter)), b.Const(1))
			if e.rank == 0 {
				b.Store(own(b, 0, slot), b.Const(1))
				b.Signal(own(b, 0, told), epoch, b.Const(1))
				b.Store(own(b, 0, slot), b.Const(2))
			} else {
				b.Wait(own(b, 0, told), epoch, b.Const(0))
				b.Copy(b.Recv(b.Const(0)), own(b, 0, slot), b.Const(8))
			}
			b.Signal(own(b, e.rank, semaphore), epoch, b.Const(int64(1-e.rank)))
			b.Wait(own(b, 1-e.rank, semaphore), epoch, b.Const(int64(1-e.rank)))
			b.Store(own(b, e.rank, counter), epoch)
		})
	})
}

// Whatever the others can do before a late rank continues, they do, and the delay is over
// when they wait: long before its longest.
func TestDelaysLetTheOthersGoAhead(t *testing.T) {
	const runs = 20
	w := newWorld(t, 2, 4096)
	late(t, w, "ranks=1,steps=copy,probability=1,longest=1s")
	start := time.Now()
	w.run(func(_ int, e *Engine) error {
		p := racing(t, e)
		for range runs {
			got := new(int64)
			a := Arguments{Recv: unsafe.Pointer(got)}
			a.Slots[plugin.SlotRecvBytes] = 8
			if err := e.Run(p, &a, time.Minute); err != nil {
				return err
			}
			if e.rank == 1 && *got != 2 {
				t.Errorf("rank 1 was late and read %d", *got)
			}
		}
		return nil
	})
	if took := time.Since(start); took > runs*time.Second/4 {
		t.Errorf("%d delays took %v", runs, took)
	}
	if n := []uint64{delaysOf(w.engines[0]), delaysOf(w.engines[1])}; !slices.Equal(n, []uint64{0, runs}) {
		t.Errorf("the ranks were delayed %v times", n)
	}
}

// Where a rank is late follows from the seed.
func TestDelaysRepeat(t *testing.T) {
	w := newWorld(t, 2, 4096)
	places := func(seed string) (counts [2][]uint64) {
		late(t, w, "probability=0.3,longest=100us,seed="+seed)
		w.run(func(rank int, e *Engine) error {
			p := racing(t, e)
			for range 50 {
				a := Arguments{Recv: unsafe.Pointer(new(int64))}
				a.Slots[plugin.SlotRecvBytes] = 8
				if err := e.Run(p, &a, time.Minute); err != nil {
					return err
				}
				counts[rank] = append(counts[rank], delaysOf(e))
			}
			return nil
		})
		return counts
	}
	one, again, two := places("1"), places("1"), places("2")
	for rank := range 2 {
		if !slices.Equal(one[rank], again[rank]) {
			t.Errorf("rank %d: delays until each run with seed 1: %v, and then %v", rank, one[rank], again[rank])
		}
		if slices.Equal(one[rank], two[rank]) {
			t.Errorf("rank %d: seeds 1 and 2 give the same delays, %v", rank, one[rank])
		}
		if n := one[rank][49]; n < 50 || n > 250 { // of 250 to 350 steps
			t.Errorf("rank %d: %d delays", rank, n)
		}
	}
}

// A late rank looks at the abort word and at the deadline.
func TestDelaysEnd(t *testing.T) {
	run := func(t *testing.T, deadline time.Duration, meanwhile func(e *Engine)) (time.Duration, error) {
		w := newWorld(t, 2, 4096)
		late(t, w, "ranks=0,probability=1,longest=1s")
		e := w.engines[0]
		p := racing(t, e)
		start := time.Now()
		done := make(chan error)
		go func() { done <- e.Run(p, &Arguments{}, deadline) }()
		meanwhile(e)
		err := <-done
		return time.Since(start), err
	}
	t.Run("abort", func(t *testing.T) {
		took, err := run(t, 0, func(e *Engine) {
			for delaysOf(e) == 0 {
				runtime.Gosched()
			}
			e.Abort(plugin.Closed, 1)
		})
		if plugin.CodeOf(err) != plugin.Aborted || took > time.Second/2 {
			t.Errorf("after %v: %v", took, err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		took, err := run(t, 20*time.Millisecond, func(*Engine) {})
		if plugin.CodeOf(err) != plugin.Timeout || took > time.Second/2 {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestParseDelays(t *testing.T) {
	all := &Delays{Ranks: []int{0, 3}, Steps: []plugin.StepKind{plugin.StepCopy, plugin.StepWait}, Probability: 0.25,
		Longest: 300 * time.Microsecond, Seed: 1 << 63}
	for text, want := range map[string]*Delays{
		"seed=7":     {Probability: 0.1, Longest: 2 * time.Millisecond, Seed: 7},
		all.String(): all,
	} {
		d, err := ParseDelays(text)
		if err != nil || d.String() != want.String() {
			t.Errorf("%s: %v, %v", text, d, err)
		}
	}
	if d, err := ParseDelays(""); d != nil || err != nil {
		t.Errorf("no text: %v, %v", d, err)
	}
	for _, bad := range []string{",", "seed", "rank=1", "ranks=", "ranks=-1", "ranks=1+", "steps=set", "steps=copy,wait",
		"probability=2", "probability=NaN", "longest=2", "longest=2s", "seed=-1"} {
		if d, err := ParseDelays(bad); plugin.CodeOf(err) != plugin.InvalidArgument ||
			!strings.Contains(err.Error(), bad[:1]) {
			t.Errorf("%q: %v, %v", bad, d, err)
		}
	}
}
