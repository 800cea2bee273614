package executor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
)

// countdown returns what decides about a body: it runs *n times.
func countdown(n *uint32) func() uint32 {
	return func() uint32 {
		if *n == 0 {
			return 0
		}
		*n--
		return 1
	}
}

// Operations that are captured into the body of a conditional node, and around it: they are in order among themselves,
// with tracks, as often as the body runs; and operations outside graphs are in between.
func TestBodiesOfConditionalNodes(t *testing.T) {
	g := newGPU(t, 1)
	s, inner := g.stream(), g.stream()
	// The parts of tracks need what the plan before wrote, without atomics: the race detector sees them out of order.
	tracks := g.load(func(b *plugin.Builder) {
		for i := range 4 {
			b.Track(func() { kernel(b, "increment", place(b, 8+i)) })
		}
	})
	copies := g.load(func(b *plugin.Builder) {
		for i := range 4 {
			b.Track(func() {
				b.Copy(b.Region(b.Const(0), b.Const(0), b.Const(int64(8*(16+i)))),
					b.Region(b.Const(0), b.Const(0), b.Const(int64(8*(8+i)))), b.Const(8))
			})
		}
	})
	bump := g.bump(0)
	var left uint32
	graph := g.capture(s, func() {
		g.run(bump, s)
		g.run(tracks, s)
		require.NoError(t, g.Conditional(g.ctx, s, inner, cudatest.While, countdown(&left), func() error {
			g.run(tracks, inner) // as the capture around it uses the side streams, this one gets others
			g.run(copies, inner)
			g.run(bump, inner)
			return nil
		}))
		g.run(tracks, s)
	})
	x := g.instantiate(graph)
	require.NoError(t, g.DestroyGraph(graph))
	ran := uint64(0)
	for round, n := range []uint32{2, 0, 1, 3} {
		left = n
		require.NoError(t, g.LaunchGraph(g.ctx, x, s))
		g.synchronize(s) // left is the test's
		ran += uint64(n)
		require.Equal(t, uint64(round+1)+ran+uint64(round), g.value(0))
		for i := range 4 {
			require.Equal(t, 2*uint64(round+1)+ran, g.value(8+i))
			if n > 0 {
				require.Equal(t, g.value(8+i)-1, g.value(16+i))
			}
		}
		g.run(bump, s)
	}
	g.synchronize(s)
	require.NoError(t, g.DestroyGraphExec(x))
	require.NoError(t, Collect())
	require.Empty(t, g.device.live)
}

// What a body has captured stays while its graph, or an executable of that, is left; and goes with it.
func TestWhatABodyCapturedStaysUntilItsGraphIsDestroyed(t *testing.T) {
	g := newGPU(t, 1)
	s, inner := g.stream(), g.stream()
	d, err := NewDevice(g.Driver, 0, 0, 1)
	require.NoError(t, err)
	require.NoError(t, d.AddImages(0, testImages))
	require.NoError(t, d.SetRegion(0, 0, 0, g.words, 512))
	p, err := d.Load(g.bumpPlan(0), 0)
	require.NoError(t, err)
	left, freed := uint32(0), false
	graph := g.capture(s, func() {
		require.NoError(t, g.Conditional(g.ctx, s, inner, cudatest.If, countdown(&left), func() error {
			return d.Run(p, &Arguments{}, inner)
		}))
	})
	require.NoError(t, d.Later(func() error {
		freed = true
		return nil
	}))
	x := g.instantiate(graph)
	require.NoError(t, g.DestroyGraph(graph))
	require.NoError(t, d.Close())
	require.NoError(t, Collect())
	require.False(t, freed)
	require.Equal(t, 1, Detached())
	left = 1
	require.NoError(t, g.LaunchGraph(g.ctx, x, s))
	g.synchronize(s)
	require.Equal(t, uint64(1), g.value(0))
	require.NoError(t, g.DestroyGraphExec(x))
	require.NoError(t, Collect())
	require.True(t, freed)
	require.Zero(t, Detached())
}

// A driver that ties nothing to a body: nothing is captured there, and the error says so.
func TestBodiesThatNothingCanBeTiedTo(t *testing.T) {
	g := newGPU(t, 1)
	s, inner := g.stream(), g.stream()
	bump := g.bump(0)
	for _, result := range []cuda.Result{cuda.InvalidValue, cuda.NotPermitted, cuda.NotSupported} {
		left := uint32(1)
		graph := g.capture(s, func() {
			require.NoError(t, g.Conditional(g.ctx, s, inner, cudatest.If, countdown(&left), func() error {
				g.Fail("RetainOnGraph", 0, result)
				err := g.device.Run(bump, &Arguments{}, inner)
				require.ErrorContains(t, err, "keeping the communicator for a graph, which may be the body of a conditional node: ")
				require.Equal(t, result, cuda.ResultOf(err))
				return nil
			}))
		})
		x := g.instantiate(graph)
		require.NoError(t, g.DestroyGraph(graph))
		require.NoError(t, g.LaunchGraph(g.ctx, x, s))
		g.synchronize(s)
		require.Zero(t, g.value(0))
		require.NoError(t, g.DestroyGraphExec(x))
	}
	require.Empty(t, g.device.live)
	g.run(bump, s)
	g.synchronize(s)
}

// Commands of plugins' rings in a body: as many as it runs, in order with those around it.
func TestCommandsInBodies(t *testing.T) {
	g := newRinged(t, 1)
	note := g.posts(opNote)
	s, inner := g.stream(), g.stream()
	left := uint32(0)
	graph := g.capture(s, func() {
		note(s, 1)
		require.NoError(t, g.Conditional(g.ctx, s, inner, cudatest.While, countdown(&left), func() error {
			note(inner, 2)
			return nil
		}))
		note(s, 3)
	})
	x := g.instantiate(graph)
	require.NoError(t, g.DestroyGraph(graph))
	var want []int64
	for _, n := range []uint32{100, 0, 2} {
		left = n
		require.NoError(t, g.LaunchGraph(g.ctx, x, s))
		note(s, 4)
		g.synchronize(s)
		want = append(want, 1)
		for range n {
			want = append(want, 2)
		}
		want = append(want, 3, 4)
	}
	require.Equal(t, want, g.noted())
	require.NoError(t, g.DestroyGraphExec(x))
}
