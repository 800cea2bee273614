package executor

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/host/executor/internal/nativetest"
	"github.com/shunt-ccl/shunt/plugin"
)

// requesting returns a program whose tracks each call native code once, in a world of
// two.
func requesting(t *testing.T, e *Engine, native plugin.Native, tracks int) *Program {
	t.Helper()
	p := plan(t, 0, 2, plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) {
		for range tracks {
			b.Track(func() { b.Native(native, b.Add(b.Slot(plugin.SlotBytes), b.Const(0))) })
		}
	})
	program, err := e.Load(p, 0)
	must(t, err)
	t.Cleanup(program.Free)
	return program
}

func TestRequestsArePolledUntilTheyEnd(t *testing.T) {
	for _, polls := range []int{1, 2, 1000, 5000} {
		e := newWorld(t, 2, 8192).engines[0]
		native, r := nativetest.NewRequests(polls, 1, plugin.OK, -1, "")
		send, recv := []byte("engine"), make([]byte, 6)
		must(t, e.Run(requesting(t, e, native, 1), arguments(send, recv, 6, 6), testDeadline))
		if starts, polled, stops := r.Counts(); starts != 1 || polled != polls || stops != 0 || !bytes.Equal(send, recv) {
			t.Errorf("%d starts, %d polls of %d, %d stops, received %q", starts, polled, polls, stops, recv)
		}
	}
}

// A request that ends only once another track's is started would end never, if the
// executor waited in either.
func TestRequestsOfTracksRunAtTheSameTime(t *testing.T) {
	e := newWorld(t, 2, 8192).engines[0]
	native, r := nativetest.NewRequests(1, 3, plugin.OK, -1, "")
	must(t, e.Run(requesting(t, e, native, 3), arguments([]byte("x"), make([]byte, 1), 1, 1), testDeadline))
	if starts, _, _ := r.Counts(); starts != 3 {
		t.Errorf("%d starts", starts)
	}
}

func TestFailureOfARequestHasItsCodeWordsAndRank(t *testing.T) {
	e := newWorld(t, 2, 8192).engines[0]
	native, _ := nativetest.NewRequests(2, 1, plugin.System, 1, "rank 1's queue\nis gone")
	err := e.Run(requesting(t, e, native, 1), arguments([]byte("x"), make([]byte, 1), 1, 1), testDeadline)
	f := failureOf(t, err)
	if f.Code != plugin.System || f.Rank != 1 || !f.Native || f.Said != "rank 1's queue?is gone" ||
		!strings.Contains(f.Reason, f.Said) {
		t.Errorf("got %+v", f)
	}
	native, _ = nativetest.NewRequests(1, 1, 4321, 9, "what?")
	f = failureOf(t, e.Run(requesting(t, e, native, 1), arguments([]byte("x"), make([]byte, 1), 1, 1), testDeadline))
	if f.Code != plugin.Internal || f.Rank != -1 || !strings.Contains(f.Reason, "4321") {
		t.Errorf("unknown status and rank: %+v", f)
	}
}

// A run that is over tells its requests to stop, and none of them uses the memory when it returns, unless it says so.
func TestRunThatFailsStopsItsRequests(t *testing.T) {
	for _, how := range []string{"deadline", "abort", "deaf"} {
		t.Run(how, func(t *testing.T) {
			e := newWorld(t, 2, 8192).engines[0]
			e.setGrace(100 * time.Millisecond)
			native, r := nativetest.NewRequests(1, 99, plugin.OK, 1, "")
			deadline, code := 200*time.Millisecond, plugin.Timeout
			switch how {
			case "abort":
				deadline, code = 0, plugin.Aborted
				go func() {
					until(t, "the run waits", func() bool { waiting, _, _, _ := e.Waiting(); return waiting })
					e.Abort(plugin.PeerDied, 1)
				}()
			case "deaf":
				r.Deafen()
			}
			begin := time.Now()
			err := e.Run(requesting(t, e, native, 2), arguments([]byte("x"), make([]byte, 1), 1, 1), deadline)
			f := failureOf(t, err)
			starts, _, stops := r.Counts()
			if f.Code != code || starts != 2 || stops < 2 || f.Stuck != (how == "deaf") {
				t.Errorf("%d starts, %d stops, %+v", starts, stops, f)
			}
			if how == "deadline" && f.Rank != 1 {
				t.Errorf("the error names rank %d, want 1, which the request waited for", f.Rank)
			}
			if took := time.Since(begin); took < deadline || took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A request that does not stop may still write to the memory of its call, however that was made. Memory of others is
// freed.
func TestMemoryOfARequestThatDoesNotStopStays(t *testing.T) {
	for how, run := range map[string]func(e *Engine, l Launch, deadline time.Duration) error{
		"run": func(e *Engine, l Launch, deadline time.Duration) error {
			return e.Run(l.Program, &l.Arguments, deadline)
		},
		"group": func(e *Engine, l Launch, deadline time.Duration) error {
			return e.RunGroup([]Launch{l}, deadline)
		},
		"paused run": func(e *Engine, l Launch, deadline time.Duration) error {
			paused, err := e.RunFor(l.Program, &l.Arguments, deadline, time.Millisecond)
			if paused {
				err = e.Resume()
			}
			return err
		},
		"paused group": func(e *Engine, l Launch, deadline time.Duration) error {
			paused, err := e.RunGroupFor([]Launch{l}, deadline, time.Millisecond)
			if paused {
				err = e.Resume()
			}
			return err
		},
	} {
		for _, deaf := range []bool{true, false} {
			t.Run(fmt.Sprint(how, ", deaf ", deaf), func(t *testing.T) {
				var freed atomic.Bool
				func() {
					w := newWorld(t, 2, 8192)
					e := w.engines[0]
					e.setGrace(50 * time.Millisecond)
					native, r := nativetest.NewRequests(1, 99, plugin.OK, 1, "")
					if deaf {
						r.Deafen()
					}
					recv := make([]byte, 1<<16)
					runtime.AddCleanup(&recv[0], func(bool) { freed.Store(true) }, true)
					l := Launch{Program: requesting(t, e, native, 1), Arguments: *arguments([]byte("x"), recv, 1, 1)}
					if f := failureOf(t, run(e, l, 100*time.Millisecond)); f.Stuck != deaf {
						t.Errorf("got %+v", f)
					}
					l.Program.Free()
					w.engines[0].Close()
					w.engines[1].Close()
				}()
				collectMemory(t) // which also looks for pinned memory that nobody has any more, and ends the program
				if deaf {
					collectMemory(t)
				} else {
					until(t, "the memory is freed", func() bool { runtime.GC(); return freed.Load() })
				}
				if freed.Load() == deaf {
					t.Errorf("its memory is freed: %v", freed.Load())
				}
			})
		}
	}
}

// collectMemory returns when the collector has freed what is out of use by now.
func collectMemory(t *testing.T) {
	t.Helper()
	var freed atomic.Bool
	runtime.AddCleanup(new([1 << 16]byte), func(bool) { freed.Store(true) }, true)
	until(t, "memory is freed", func() bool { runtime.GC(); return freed.Load() })
}

func TestNativeIsAFunctionOrStartAndPoll(t *testing.T) {
	for _, n := range []plugin.Native{{}, {Start: 1}, {Poll: 1}, {Function: 1, Start: 1, Poll: 1},
		{Function: 1, Poll: 1}} {
		b := plugin.NewBuilder(plugin.Request{Collective: plugin.AllReduce, DType: plugin.Uint8, World: 2}, "test")
		b.Track(func() { b.Native(n) })
		if _, err := b.Plan(); err == nil {
			t.Errorf("%+v is valid", n)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	e := newWorld(b, 1, 8192).engines[0]
	native, _ := nativetest.NewRequests(1, 1, plugin.OK, -1, "")
	program := load(b, e, plugin.Uint8, plugin.OpSum, func(b *plugin.Builder) { b.Track(func() { b.Native(native) }) })
	defer program.Free()
	a := arguments(make([]byte, 1), make([]byte, 1), 1, 1)
	for b.Loop() {
		must(b, e.Run(program, a, testDeadline))
	}
}
