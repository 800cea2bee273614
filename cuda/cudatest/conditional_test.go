package cudatest_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
)

// bodies is a driver with words of memory, and streams for graphs and for bodies.
type bodies struct {
	*testing.T
	*cudatest.Driver
	ctx           cuda.Context
	stream, inner cuda.Stream
	words         cuda.Ptr
}

func newBodies(t *testing.T) *bodies {
	b := &bodies{T: t}
	b.Driver, b.ctx = machine(t, cudatest.Options{Devices: 2, Kernels: kernels})
	m, err := b.AllocHost(b.ctx, 64)
	require.NoError(t, err)
	b.words = m.Device
	b.stream, b.inner = b.streamOf(b.ctx), b.streamOf(b.ctx)
	return b
}

func (b *bodies) streamOf(ctx cuda.Context) cuda.Stream {
	s, err := b.NewStream(ctx, 0)
	require.NoError(b, err)
	return s
}

// adds returns a body that adds 1 to a word.
func (b *bodies) adds(word int) func() error {
	return func() error {
		launch(b.T, b.Driver, b.ctx, b.inner, "add", b.words+cuda.Ptr(8*word), 1)
		return nil
	}
}

func (b *bodies) captured(kind cudatest.ConditionalKind, value func() uint32, bodies ...func() error) cuda.Graph {
	require.NoError(b, b.BeginCapture(b.ctx, b.stream))
	require.NoError(b, b.Conditional(b.ctx, b.stream, b.inner, kind, value, bodies...))
	g, err := b.EndCapture(b.ctx, b.stream)
	require.NoError(b, err)
	return g
}

func (b *bodies) replay(x cuda.GraphExec) {
	require.NoError(b, b.LaunchGraph(b.ctx, x, b.stream))
	require.NoError(b, b.SynchronizeStream(b.ctx, b.stream))
}

func TestBodiesRunAsConditionsSay(t *testing.T) {
	b := newBodies(t)
	var set atomic.Uint32
	for _, c := range []struct {
		kind   cudatest.ConditionalKind
		value  func() uint32
		bodies int
		counts []uint64 // of each body, by the value that was set
	}{
		{cudatest.If, set.Load, 1, []uint64{0, 1, 1}},
		{cudatest.If, set.Load, 2, []uint64{0x10, 1, 1}},
		{cudatest.Switch, set.Load, 2, []uint64{1, 0x10, 0}},
		{cudatest.While, func() uint32 { return set.Add(^uint32(0)) + 1 }, 1, []uint64{0, 1, 2}},
	} {
		of := []func() error{b.adds(0), b.adds(1)}[:c.bodies]
		g := b.captured(c.kind, c.value, of...)
		x, err := b.Instantiate(b.ctx, g)
		require.NoError(t, err)
		require.NoError(t, b.DestroyGraph(g))
		for v, want := range c.counts {
			set.Store(uint32(v))
			before := [2]uint64{value(b.Driver, b.words), value(b.Driver, b.words+8)}
			b.replay(x)
			ran := value(b.Driver, b.words) - before[0] + (value(b.Driver, b.words+8)-before[1])<<4
			require.Equal(t, want, ran, "kind %d with %d bodies, value %d", c.kind, c.bodies, v)
		}
		require.NoError(t, b.DestroyGraphExec(x))
	}
	require.Zero(t, b.Held()["graphs"]+b.Held()["graph executables"])
}

func TestBodiesRefuseWhatCUDARefuses(t *testing.T) {
	b := newBodies(t)
	always := func() uint32 { return 0 }
	require.NoError(t, b.Driver.EnablePeer(b.ctx, b.ctx+1))
	elsewhere, err := b.Retain(1)
	require.NoError(t, err)
	far := b.streamOf(elsewhere)
	for what, body := range map[string]func() error{
		"a word written": func() error { return b.WriteValue(b.ctx, b.inner, b.words, 1) },
		"a word awaited": func() error { return b.WaitValue(b.ctx, b.inner, b.words, 1) },
		"kernels of two contexts": func() error {
			e, err := b.NewEvent(b.ctx, false)
			require.NoError(t, err)
			require.NoError(t, b.Record(b.ctx, e, b.inner))
			require.NoError(t, b.WaitEvent(elsewhere, far, e))
			launch(t, b.Driver, elsewhere, far, "add", b.words, 1)
			require.NoError(t, b.Record(elsewhere, e, far))
			return b.WaitEvent(b.ctx, b.inner, e)
		},
	} {
		g := b.captured(cudatest.If, always, body)
		_, err := b.Instantiate(b.ctx, g)
		require.Equal(t, cuda.InvalidValue, cuda.ResultOf(err), what)
		require.NoError(t, b.DestroyGraph(g))
	}
	// What is in the graph beside the node may be anything.
	require.NoError(t, b.BeginCapture(b.ctx, b.stream))
	require.NoError(t, b.WriteValue(b.ctx, b.stream, b.words, 0))
	require.NoError(t, b.Conditional(b.ctx, b.stream, b.inner, cudatest.If, always, b.adds(0)))
	g, err := b.EndCapture(b.ctx, b.stream)
	require.NoError(t, err)
	x, err := b.Instantiate(b.ctx, g)
	require.NoError(t, err)
	require.NoError(t, b.DestroyGraphExec(x))
	require.NoError(t, b.DestroyGraph(g))
}

// A body is the driver's, and another capture than the one around it.
func TestBodiesAreCapturesOfTheirOwn(t *testing.T) {
	b := newBodies(t)
	e, err := b.NewEvent(b.ctx, false)
	require.NoError(t, err)
	require.NoError(t, b.BeginCapture(b.ctx, b.stream))
	around, err := b.CaptureInfo(b.ctx, b.stream)
	require.NoError(t, err)
	require.NoError(t, b.RetainOnGraph(around.Graph, 1))
	var seen cuda.Capture
	require.NoError(t, b.Conditional(b.ctx, b.stream, b.inner, cudatest.If, func() uint32 { return 1 }, func() error {
		seen, err = b.CaptureInfo(b.ctx, b.inner)
		require.NoError(t, err)
		require.NoError(t, b.RetainOnGraph(seen.Graph, 2))
		_, err = b.Instantiate(b.ctx, seen.Graph)
		require.Equal(t, cuda.InvalidValue, cuda.ResultOf(err))
		require.Equal(t, cuda.InvalidValue, cuda.ResultOf(b.DestroyGraph(seen.Graph)))
		return b.adds(0)()
	}))
	require.NotEqual(t, around.Graph, seen.Graph)
	require.NotEqual(t, around.ID, seen.ID)
	// Once more into the body: yet another capture.
	require.NoError(t, b.BeginCaptureToGraph(b.ctx, b.inner, seen.Graph))
	again, err := b.CaptureInfo(b.ctx, b.inner)
	require.NoError(t, err)
	require.Equal(t, seen.Graph, again.Graph)
	require.NotEqual(t, seen.ID, again.ID)
	require.NoError(t, b.adds(1)())
	_, err = b.EndCapture(b.ctx, b.inner)
	require.NoError(t, err)
	g, err := b.EndCapture(b.ctx, b.stream)
	require.NoError(t, err)
	x, err := b.Instantiate(b.ctx, g)
	require.NoError(t, err)
	require.NoError(t, b.DestroyGraph(g))
	require.Empty(t, b.Released(make([]uint64, 4)), "the executable holds them")
	b.replay(x)
	require.Equal(t, [2]uint64{1, 1}, [2]uint64{value(b.Driver, b.words), value(b.Driver, b.words+8)})
	require.NoError(t, b.DestroyGraphExec(x))
	require.ElementsMatch(t, []uint64{1, 2}, b.Released(make([]uint64, 4)))

	// What is in one capture cannot be waited for in another.
	require.NoError(t, b.BeginCapture(b.ctx, b.stream))
	require.NoError(t, b.Record(b.ctx, e, b.stream))
	err = b.Conditional(b.ctx, b.stream, b.inner, cudatest.If, func() uint32 { return 1 }, func() error {
		err := b.WaitEvent(b.ctx, b.inner, e)
		require.Equal(t, cuda.CaptureMerge, cuda.ResultOf(err))
		return err
	})
	require.Error(t, err)
	_, err = b.EndCapture(b.ctx, b.stream)
	require.Equal(t, cuda.CaptureInvalid, cuda.ResultOf(err))
	require.Zero(t, b.Held()["graphs"])
}
