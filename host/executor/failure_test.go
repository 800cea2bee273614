package executor

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestEveryRefIsChecked(t *testing.T) {
	const far = math.MaxInt64
	region := func(b *plugin.Builder, number, rank, offset int64) plugin.RefID {
		return b.Region(b.Const(number), b.Const(rank), b.Const(offset))
	}
	cases := []struct {
		name   string
		body   func(b *plugin.Builder)
		code   plugin.Code
		reason string
	}{
		{"send too short", func(b *plugin.Builder) { b.Copy(b.Recv(b.Const(0)), b.Send(b.Const(60)), b.Const(8)) },
			plugin.Internal, "8 bytes at offset 60 exceed the send memory of 64 bytes"},
		{"receive too short", func(b *plugin.Builder) { b.Copy(b.Recv(b.Const(1)), b.Send(b.Const(0)), b.Const(64)) },
			plugin.Internal, "64 bytes at offset 1 exceed the receive memory of 64 bytes"},
		{"negative offset", func(b *plugin.Builder) { b.Copy(b.Recv(b.Const(-1)), b.Send(b.Const(0)), b.Const(8)) },
			plugin.Internal, "8 bytes at offset -1 exceed the receive memory of 64 bytes"},
		{"offset that overflows", func(b *plugin.Builder) { b.Copy(b.Recv(b.Const(far)), b.Send(b.Const(0)), b.Const(8)) },
			plugin.Internal, "8 bytes at offset 9223372036854775807 exceed the receive memory of 64 bytes"},
		{"length that overflows", func(b *plugin.Builder) { b.Copy(b.Recv(b.Const(8)), b.Send(b.Const(0)), b.Const(far)) },
			plugin.Internal, "9223372036854775807 bytes at offset 8 exceed the receive memory of 64 bytes"},
		{"negative length", func(b *plugin.Builder) { b.Copy(b.Recv(b.Const(0)), b.Send(b.Const(0)), b.Const(-1)) },
			plugin.Internal, "a length of -1"},
		{"reduce overflows", func(b *plugin.Builder) { b.Reduce(b.Recv(b.Const(0)), b.Const(far/4+2), b.Send(b.Const(0))) },
			plugin.Internal, "a length of 2305843009213693953"},
		{"reduce beyond a source", func(b *plugin.Builder) {
			b.Reduce(b.Recv(b.Const(0)), b.Const(2), b.Send(b.Const(0)), b.Send(b.Const(60)))
		},
			plugin.Internal, "8 bytes at offset 60 exceed the send memory of 64 bytes"},
		{"region too short", func(b *plugin.Builder) { b.Copy(region(b, 0, 1, 8190), b.Send(b.Const(0)), b.Const(4)) },
			plugin.Internal, "4 bytes at offset 8190 exceed region 0 of rank 1 of 8192 bytes"},
		{"no such region", func(b *plugin.Builder) { b.Load(region(b, 3, 0, 0)) },
			plugin.Internal, "8 bytes at offset 0 exceed region 3 of rank 0 of 0 bytes"},
		{"region beyond every chunk", func(b *plugin.Builder) { b.Load(region(b, 70, 0, 0)) },
			plugin.Internal, "there is no region 70"},
		{"region beyond the table", func(b *plugin.Builder) { b.Load(region(b, MaxEntries, 0, 0)) },
			plugin.Internal, "there is no region 65536"},
		{"negative region", func(b *plugin.Builder) { b.Load(region(b, -1, 0, 0)) },
			plugin.Internal, "there is no region -1"},
		{"no such rank", func(b *plugin.Builder) { b.Load(region(b, 0, 2, 0)) },
			plugin.Internal, "there is no rank 2 in a world of 2"},
		{"negative rank", func(b *plugin.Builder) { b.Load(region(b, 0, math.MinInt64, 0)) },
			plugin.Internal, "there is no rank -9223372036854775808 in a world of 2"},
		{"misaligned load", func(b *plugin.Builder) { b.Load(region(b, 0, 0, 4)) },
			plugin.Internal, "the word at offset 4 of region 0 of rank 0 is not aligned to 8 bytes"},
		{"misaligned store", func(b *plugin.Builder) { b.Store(region(b, 0, 1, 9), b.Const(1)) },
			plugin.Internal, "the word at offset 9 of region 0 of rank 1 is not aligned to 8 bytes"},
		{"misaligned wait", func(b *plugin.Builder) { b.Wait(region(b, 0, 0, 1), b.Const(0), b.Const(0)) },
			plugin.Internal, "the word at offset 1 of region 0 of rank 0 is not aligned to 8 bytes"},
		{"word past the end", func(b *plugin.Builder) { b.Signal(region(b, 0, 0, 8192), b.Const(1), b.Const(0)) },
			plugin.Internal, "8 bytes at offset 8192 exceed region 0 of rank 0 of 8192 bytes"},
		{"signal to no rank", func(b *plugin.Builder) { b.Signal(region(b, 0, 0, 0), b.Const(1), b.Const(2)) },
			plugin.Internal, "there is no rank 2 in a world of 2"},
		{"barrier outside", func(b *plugin.Builder) { b.Barrier(region(b, 0, 0, 9000), region(b, 0, 0, 0)) },
			plugin.Internal, "8 bytes at offset 9000 exceed region 0 of rank 0 of 8192 bytes"},
	}
	w := newWorld(t, 2, 8192)
	e := w.engines[0]
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
				b.Track(func() { b.Load(b.Region(b.Const(0), b.Const(0), b.Const(0))) }) // another track, another step
				b.Track(func() { c.body(b) })
			})
			err := e.Run(p, arguments(make([]byte, 64), make([]byte, 64), 16, 64), testDeadline)
			f := failureOf(t, err)
			if f.Code != c.code || plugin.CodeOf(err) != c.code || f.Reason != c.reason || f.Track != 1 || f.Step != 1 {
				t.Errorf("got %v %q at step %d of track %d, want %v %q at step 1 of track 1", f.Code, f.Reason, f.Step, f.Track,
					c.code, c.reason)
			}
			if !strings.HasPrefix(err.Error(), "executor of rank 0: step 1 of track 1: ") {
				t.Errorf("message %q", err)
			}
		})
	}
	t.Run("null with bytes", func(t *testing.T) {
		p := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
			b.Track(func() { b.Copy(b.Recv(b.Const(0)), b.Send(b.Const(0)), b.Const(4)) })
		})
		a := arguments(make([]byte, 4), nil, 1, 4)
		a.Slots[plugin.SlotRecvBytes] = 4
		f := failureOf(t, e.Run(p, a, testDeadline))
		if f.Code != plugin.Internal || f.Reason != "the receive memory is null but 4 bytes of it are needed" {
			t.Errorf("got %+v", f)
		}
	})
	t.Run("negative user memory", func(t *testing.T) {
		p := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) { b.Track(func() {}) })
		a := arguments(nil, nil, 0, 0)
		a.Slots[plugin.SlotSendBytes] = -4
		f := failureOf(t, e.Run(p, a, testDeadline))
		if f.Code != plugin.InvalidArgument || f.Reason != "negative length of send (-4) or receive memory (0)" {
			t.Errorf("got %+v", f)
		}
	})
}

func TestArgumentsAreChecked(t *testing.T) {
	w := newWorld(t, 2, 8192)
	e := w.engines[0]
	empty := func(b *plugin.Builder) { b.Track(func() {}) }
	p := load(t, e, plugin.Int32, plugin.OpSum, empty)
	refused := func(what string, err error, code plugin.Code) {
		t.Helper()
		if plugin.CodeOf(err) != code || err == nil {
			t.Errorf("%s: got %v, want %s", what, err, code)
		}
	}
	a := arguments(nil, nil, 0, 0)
	a.Arrays = make([]int64, 7)
	refused("arrays of the wrong length", e.Run(p, a, 0), plugin.InvalidArgument)
	a.Arrays = nil
	refused("another engine's program", w.engines[1].Run(p, a, 0), plugin.InvalidArgument)
	refused("no program", e.Run(nil, a, 0), plugin.InvalidArgument)
	freed, err := e.Load(plan(t, 0, 2, plugin.Int32, plugin.OpSum, empty), 0)
	must(t, err)
	freed.Free()
	freed.Free()
	refused("freed program", e.Run(freed, a, 0), plugin.InvalidArgument)

	_, err = e.Load(nil, 0)
	refused("no plan", err, plugin.InvalidArgument)
	_, err = e.Load(plan(t, 1, 2, plugin.Int32, plugin.OpSum, empty), 0)
	refused("another rank's plan", err, plugin.Protocol)
	_, err = e.Load(plan(t, 0, 3, plugin.Int32, plugin.OpSum, empty), 0)
	refused("another world's plan", err, plugin.Protocol)
	_, err = e.Load(plan(t, 0, 2, plugin.Int32, plugin.OpSum, empty), 8)
	refused("odd base", err, plugin.InvalidArgument)
	_, err = e.Load(&plugin.Plan{World: 2, Tracks: []plugin.Track{{Count: 1}}}, 0)
	refused("invalid plan", err, plugin.Protocol)
	launch := plan(t, 0, 2, plugin.Int32, plugin.OpSum, empty)
	launch.Kernels = []plugin.Kernel{{Name: "k", Shared: plugin.None}}
	launch.Steps = []plugin.Step{{Kind: plugin.StepLaunch}}
	launch.Tracks[0].Count = 1
	_, err = e.Load(launch, 0)
	refused("launch step", err, plugin.Unsupported)

	refused("control page of no rank", e.SetControl(2, Memory{}), plugin.InvalidArgument)
	refused("short control page", e.SetControl(1, memory(make([]byte, 64))), plugin.InvalidArgument)
	refused("region of no rank", e.SetRegion(0, 0, -1, Memory{}), plugin.InvalidArgument)
	refused("odd base", e.SetRegion(3, 0, 0, Memory{}), plugin.InvalidArgument)
	refused("entry past the table", e.SetRegion(MaxEntries-16, 16, 0, Memory{}), plugin.InvalidArgument)
	refused("entry that overflows", e.SetRegion(math.MaxUint32-15, 16, 0, Memory{}), plugin.InvalidArgument)
	refused("null region with bytes", e.SetRegion(0, 1, 0, Memory{Bytes: 1}), plugin.InvalidArgument)
	_, err = NewEngine(2, 2)
	refused("rank outside the world", err, plugin.InvalidArgument)
	_, err = NewEngine(0, plugin.MaxWorld+1)
	refused("world too large", err, plugin.InvalidArgument)
}

func TestHostilePlansDoNotTranslateIntoGigabytes(t *testing.T) {
	e, err := NewEngine(0, 1)
	must(t, err)
	defer e.Close()
	p := plan(t, 0, 1, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) {
		b.Track(func() {
			word := own(b, 0, 0)
			for range plugin.MaxSteps {
				b.Store(word, b.Const(1))
			}
		})
	})
	for range 100 {
		p.Tracks = append(p.Tracks, p.Tracks[0])
	}
	if _, err := e.Load(p, 0); plugin.CodeOf(err) != plugin.Protocol || err == nil {
		t.Errorf("tracks that share steps: %v", err)
	}
	wide := &plugin.Plan{World: 1, Refs: make([]plugin.Ref, plugin.MaxRefs), Tracks: []plugin.Track{{Count: 1000}}}
	for range 1000 {
		wide.Steps = append(wide.Steps, plugin.Step{Kind: plugin.StepReduce, B: plugin.MaxRefs})
	}
	for i := range wide.Refs {
		wide.Refs[i].Scale = plugin.None
	}
	must(t, wide.Validate())
	if _, err := e.Load(wide, 0); plugin.CodeOf(err) != plugin.Protocol || err == nil {
		t.Errorf("reductions that share refs: %v", err)
	}
}

func TestEndlessPlansEnd(t *testing.T) {
	bodies := map[string]func(b *plugin.Builder){
		"empty loop": func(b *plugin.Builder) {
			b.Loop(b.Const(math.MaxInt64), func(i plugin.Reg) { b.Add(i, i) })
		},
		"loop of copies": func(b *plugin.Builder) {
			b.Loop(b.Const(math.MaxInt64), func(plugin.Reg) {
				b.Copy(b.Recv(b.Const(0)), b.Send(b.Const(0)),
					b.Slot(plugin.SlotBytes))
			})
		},
		"nested loops": func(b *plugin.Builder) {
			b.Loop(b.Const(math.MaxInt64), func(plugin.Reg) {
				b.Loop(b.Const(math.MaxInt64), func(i plugin.Reg) { b.Add(i, i) })
			})
		},
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 8192)
			e := w.engines[0]
			p := load(t, e, plugin.Int32, plugin.OpSum, func(b *plugin.Builder) { b.Track(func() { body(b) }) })
			a := arguments(make([]byte, 1<<16), make([]byte, 1<<16), 1<<14, 1<<16)
			if err := e.Run(p, a, 20*time.Millisecond); !errors.Is(err, plugin.Timeout) {
				t.Errorf("with a deadline: %v", err)
			}
			done := make(chan error)
			go func() { done <- e.Run(p, a, 0) }()
			e.Abort(plugin.PeerDied, -1)
			if err := <-done; !errors.Is(err, plugin.Aborted) || !errors.Is(err, plugin.PeerDied) {
				t.Errorf("after abort: %v", err)
			}
		})
	}
}
