package executor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Rule 11, for the tracks of a plan: they run at the same time, behind what is
// in the caller's stream and before what follows there.
func TestRule11TracksAreForkedAndJoined(t *testing.T) {
	g := newGPU(t, 1)
	s := g.stream()
	const tracks = 20 // more than there are side streams
	// The first tracks need each other; the last ones increment.
	p := g.load(func(b *plugin.Builder) {
		for i := range tracks {
			b.Track(func() {
				if i < 8 {
					kernel(b, "add", place(b, 2), plugin.Value(b.Const(1), 8))
					kernel(b, "await", place(b, 2), plugin.Value(b.Mul(b.Slot(plugin.SlotBytes), b.Const(8)), 8),
						plugin.Value(b.Const(0), 8))
				}
				kernel(b, "increment", place(b, 8+i))
			})
		}
	})
	gather := g.load(func(b *plugin.Builder) {
		b.Track(func() {
			for i := range tracks {
				kernel(b, "copyword", place(b, 32+i), place(b, 8+i))
			}
		})
	})
	a := &Arguments{}
	check := func(round int64, run func()) {
		t.Helper()
		a.Slots[plugin.SlotBytes] = round
		run()
		g.synchronize(s)
		for i := range tracks {
			require.Equal(t, uint64(round), g.value(32+i), "track %d", i)
		}
	}
	both := func() {
		require.NoError(t, g.device.Run(p, a, s))
		g.run(gather, s)
	}
	check(1, both)
	check(2, both)
	var graph cuda.Graph
	check(3, func() {
		graph = g.capture(s, both)
		x := g.instantiate(graph)
		require.NoError(t, g.LaunchGraph(g.ctx, x, s))
		require.NoError(t, g.DestroyGraphExec(x))
	})
	require.NoError(t, g.DestroyGraph(graph))
	check(4, both)
}

// Rule 11, for tracks while captures are in progress: streams that belong to one
// of them are used neither by another nor by what is not captured.
func TestRule11TracksOfCapturesInProgressStayApart(t *testing.T) {
	g := newGPU(t, 1)
	p := g.tracks(3, 8)
	first, second, eager := g.stream(), g.stream(), g.stream()
	require.NoError(t, g.BeginCapture(g.ctx, first))
	g.run(p, first)
	g.run(p, eager)
	require.NoError(t, g.BeginCapture(g.ctx, second))
	g.run(p, second)
	g.run(p, eager)
	g.run(p, first)
	g.run(p, second)
	g.synchronize(eager)
	for i := range 3 {
		require.Equal(t, uint64(2), g.value(8+i), "only what is not captured has run")
	}
	run := uint64(2)
	for _, s := range []cuda.Stream{second, first} {
		graph, err := g.EndCapture(g.ctx, s)
		require.NoError(t, err, "every branch was joined")
		x := g.instantiate(graph)
		require.NoError(t, g.LaunchGraph(g.ctx, x, s))
		g.synchronize(s)
		run += 2
		for i := range 3 {
			require.Equal(t, run, g.value(8+i))
		}
		require.NoError(t, g.DestroyGraphExec(x))
		require.NoError(t, g.DestroyGraph(graph))
	}
	sets := len(g.device.graphed)
	graph := g.capture(first, func() { g.run(p, first) })
	require.Len(t, g.device.graphed, sets, "streams of captures that have ended are used again")
	require.NoError(t, g.DestroyGraph(graph))
}

// Streams join a capture when work reaches them: captures that were begun without work in tracks, and got it in any
// order, stay apart as well.
func TestRule11TracksOfCapturesComeLate(t *testing.T) {
	g := newGPU(t, 1)
	single, tracks := g.bump(20), g.tracks(3, 8)
	sometimes := g.load(func(b *plugin.Builder) {
		b.Track(func() { kernel(b, "increment", place(b, 8)) })
		b.Track(func() { b.If(b.Slot(plugin.SlotBytes), func() { kernel(b, "increment", place(b, 9)) }) })
	})
	work := &Arguments{}
	work.Slots[plugin.SlotBytes] = 1
	for name, begin := range map[string]*DeviceProgram{"one track": single, "a track without work": sometimes} {
		t.Run(name, func(t *testing.T) {
			streams := []cuda.Stream{g.stream(), g.stream(), g.stream()}
			for _, s := range streams {
				require.NoError(t, g.BeginCapture(g.ctx, s))
				require.NoError(t, g.device.Run(begin, &Arguments{}, s))
			}
			for _, s := range append(streams, streams[1], streams[0], streams[2]) {
				require.NoError(t, g.device.Run(tracks, work, s))
				require.NoError(t, g.device.Run(sometimes, work, s))
			}
			for _, s := range streams {
				graph, err := g.EndCapture(g.ctx, s)
				require.NoError(t, err)
				require.NoError(t, g.DestroyGraph(graph))
			}
		})
	}
}

// What is not captured needs nothing that a capture in progress lacks.
func TestTracksOutsideCapturesAreTheirOwn(t *testing.T) {
	g := newGPU(t, 1)
	single, tracks := g.bump(20), g.tracks(3, 8)
	first, eager := g.stream(), g.stream()
	require.NoError(t, g.BeginCapture(g.ctx, first))
	require.NoError(t, g.device.Run(single, &Arguments{}, first))
	g.Fail("NewStream", 0, cuda.OutOfMemory)
	require.NoError(t, g.device.Run(tracks, &Arguments{}, eager))
	graph, err := g.EndCapture(g.ctx, first)
	require.NoError(t, err)
	require.NoError(t, g.DestroyGraph(graph))
}

// Wherever the driver fails within a plan, the Device is not idle before every track has ended, so nothing is freed
// under a kernel.
func TestTracksRunOnAfterAFailure(t *testing.T) {
	for _, method := range []string{"Record", "WaitEvent", "LaunchKernels"} {
		for after := 0; ; after++ {
			g := newGPU(t, 1)
			p := g.load(func(b *plugin.Builder) {
				b.Track(func() { kernel(b, "increment", place(b, 8)) })
				for i := range 2 {
					b.Track(func() {
						kernel(b, "await", place(b, 3), plugin.Value(b.Const(1), 8), plugin.Value(b.Const(0), 8))
						kernel(b, "increment", place(b, 10+i))
					})
				}
			})
			g.Fail(method, after, cuda.OutOfMemory)
			err := g.device.Run(p, &Arguments{}, g.stream())
			if g.Pending(method) {
				require.Positive(t, after)
				g.store(3, 1)
				break
			}
			require.Error(t, err)
			for begun := time.Now(); time.Since(begun) < 5*time.Millisecond; {
				if g.device.Idle() {
					for _, side := range g.device.side.streams {
						ended, err := g.StreamDone(g.ctx, side)
						require.NoError(t, err)
						require.True(t, ended, "a track's stream, after %s, call %d", method, after)
					}
					break
				}
			}
			g.store(3, 1)
		}
	}
}
