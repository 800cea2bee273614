package executor

import (
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/host/executor/internal/nativetest"
	"github.com/shunt-ccl/shunt/plugin"
)

// calling returns a program of one native step.
func calling(t *testing.T, e *Engine, native plugin.Native) *Program {
	t.Helper()
	p := plan(t, 0, 1, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) { b.Track(func() { b.Load(own(b, 0, 0)) }) })
	p.Natives = []plugin.Native{native}
	p.Steps = append(p.Steps, plugin.Step{Kind: plugin.StepNative})
	p.Tracks[0].Count++
	program, err := e.Load(p, 0)
	must(t, err)
	return program
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func TestNativeFunctionThatDoesNotReturnEndsTheRun(t *testing.T) {
	for _, how := range []string{"run", "group", "resumed"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t, 1, 8192)
			e := w.engines[0]
			native, stuck := nativetest.NewStuck()
			p := calling(t, e, native)
			begin := time.Now()
			var err error
			const deadline = 200 * time.Millisecond
			switch how {
			case "run":
				err = e.Run(p, arguments(nil, nil, 0, 0), deadline)
			case "group":
				err = e.RunGroup([]Launch{{Program: p, Arguments: *arguments(nil, nil, 0, 0)}}, deadline)
			case "resumed":
				_, err = e.RunFor(p, arguments(nil, nil, 0, 0), deadline, time.Millisecond)
			}
			f := failureOf(t, err)
			if f.Code != plugin.Timeout || !f.Native || !f.Stuck || f.Step != 1 ||
				!strings.Contains(f.Reason, "has not returned for") {
				t.Errorf("got %+v", f)
			}
			if took := time.Since(begin); took < deadline || took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
			// What the lost thread still uses outlives all that may be freed.
			p.Free()
			e.Close()
			stuck.Release()
			until(t, "the function returns", stuck.Left)
		})
	}
}

func TestAbortWaitsForANativeFunctionForAMoment(t *testing.T) {
	for _, returns := range []bool{true, false} {
		w := newWorld(t, 1, 8192)
		e := w.engines[0]
		e.setGrace(300 * time.Millisecond)
		if returns {
			e.setGrace(time.Minute)
		}
		native, stuck := nativetest.NewStuck()
		p := calling(t, e, native)
		ended := make(chan error)
		go func() { ended <- e.Run(p, arguments(nil, nil, 0, 0), 0) }()
		until(t, "the function is called", stuck.Entered)
		e.Abort(plugin.PeerDied, 0)
		if returns {
			stuck.Release()
		}
		err := <-ended
		if returns != stuck.Left() || returns && err != nil && plugin.CodeOf(err) != plugin.Aborted {
			t.Errorf("returns %v, has returned %v: %v", returns, stuck.Left(), err)
		}
		if !returns && !failureOf(t, err).Stuck {
			t.Errorf("it did not return: %v", err)
		}
		p.Free()
		e.Close()
		stuck.Release()
		until(t, "the function returns", stuck.Left)
	}
}

func TestUnknownStatusOfANativeFunctionIsInternal(t *testing.T) {
	for _, status := range []plugin.Code{12345, -1, plugin.Internal + 1} {
		w := newWorld(t, 1, 8192)
		native, seen := nativetest.New(status)
		p := calling(t, w.engines[0], native)
		err := w.engines[0].Run(p, arguments(nil, nil, 0, 0), testDeadline)
		f := failureOf(t, err)
		if f.Code != plugin.Internal || plugin.CodeOf(err) != plugin.Internal ||
			!strings.Contains(f.Reason, strings.TrimSuffix(strings.TrimPrefix(status.String(), "unknown("), ")")) {
			t.Errorf("status %d: %+v", status, f)
		}
		p.Free()
		seen.Free()
	}
}

func BenchmarkNative(b *testing.B) {
	w := newWorld(b, 1, 8192)
	native, seen := nativetest.New(plugin.OK)
	defer seen.Free()
	p := load(b, w.engines[0], plugin.Int32, plugin.OpSum,
		func(b *plugin.Builder) { b.Track(func() { b.Load(own(b, 0, 0)) }) })
	defer p.Free()
	plan := plan(b, 0, 1, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) { b.Track(func() { b.Load(own(b, 0, 0)) }) })
	plan.Natives, plan.Steps = []plugin.Native{native}, append(plan.Steps, plugin.Step{Kind: plugin.StepNative})
	plan.Tracks[0].Count++
	program, err := w.engines[0].Load(plan, 0)
	must(b, err)
	defer program.Free()
	a := arguments(nil, nil, 0, 0)
	for b.Loop() {
		must(b, w.engines[0].Run(program, a, testDeadline))
	}
}
