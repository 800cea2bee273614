package executor

import (
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// listener is a driver that notes which of its methods are called.
type listener struct {
	cuda.Driver
	mu    sync.Mutex
	calls []string
}

func (l *listener) note(call string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, call)
}

// heard returns the calls since the last time.
func (l *listener) heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := l.calls
	l.calls = nil
	return calls
}

func (l *listener) Submit(c cuda.Context, b *cuda.Batch) (int, cuda.Capture, error) {
	l.note("Submit")
	return l.Driver.Submit(c, b)
}

func (l *listener) CaptureInfo(c cuda.Context, s cuda.Stream) (cuda.Capture, error) {
	l.note("CaptureInfo")
	return l.Driver.CaptureInfo(c, s)
}

func (l *listener) RetainOnGraph(g cuda.Graph, token uint64) error {
	l.note("RetainOnGraph")
	return l.Driver.RetainOnGraph(g, token)
}

func (l *listener) RecordContext(c cuda.Context, e cuda.Event) error {
	l.note("RecordContext")
	return l.Driver.RecordContext(c, e)
}

func (l *listener) Record(c cuda.Context, e cuda.Event, s cuda.Stream) error {
	l.note("Record")
	return l.Driver.Record(c, e, s)
}

func (l *listener) NewStream(c cuda.Context, p int) (cuda.Stream, error) {
	l.note("NewStream")
	return l.Driver.NewStream(c, p)
}

func (l *listener) NewEvent(c cuda.Context, timing bool) (cuda.Event, error) {
	l.note("NewEvent")
	return l.Driver.NewEvent(c, timing)
}

func (l *listener) AllocHost(c cuda.Context, n int64) (cuda.HostMemory, error) {
	l.note("AllocHost")
	return l.Driver.AllocHost(c, n)
}

func (l *listener) LoadModule(c cuda.Context, image []byte) (cuda.Module, error) {
	l.note("LoadModule")
	return l.Driver.LoadModule(c, image)
}

func (l *listener) Function(c cuda.Context, m cuda.Module, name string, shared int) (cuda.Function, error) {
	l.note("Function")
	return l.Driver.Function(c, m, name, shared)
}

// listen puts a listener between a new Device and the driver.
func (g *gpu) listen() *listener {
	l := &listener{Driver: g.Driver}
	require.NoError(g.t, g.device.Close())
	g.device = g.newDevice(l, g.device.world)
	return l
}

// Rule 4: one staging buffer per field in flight. Argument blocks are put
// together in memory that every call reuses; operations that wait in a stream,
// and graphs, keep their own.
func TestRule04ArgumentBlocksAreNotSharedByCallsInFlight(t *testing.T) {
	g := newGPU(t, 1)
	s, captured := g.stream(), g.stream()
	hold := g.hold(0)
	add := g.load(func(b *plugin.Builder) {
		b.Track(func() {
			at := b.Mul(b.Const(8), b.Slot(plugin.SlotRoot))
			kernel(b, "add", plugin.Address(b.Region(b.Const(0), b.Const(0), at)), plugin.Value(b.Slot(plugin.SlotBytes), 8))
		})
	})
	run := func(s cuda.Stream, i, n int64) {
		a := &Arguments{}
		a.Slots[plugin.SlotRoot], a.Slots[plugin.SlotBytes] = i, n
		require.NoError(t, g.device.Run(add, a, s))
	}
	graph := g.capture(captured, func() { run(captured, 9, 1000) })
	x := g.instantiate(graph)
	g.run(hold, s)
	for i := range int64(8) {
		run(s, i+1, 10*(i+1))
	}
	var batch []DeviceLaunch
	for i := range int64(4) {
		l := DeviceLaunch{Program: add}
		l.Arguments.Slots[plugin.SlotRoot], l.Arguments.Slots[plugin.SlotBytes] = 10+i, 10*(10+i)
		batch = append(batch, l)
	}
	require.NoError(t, g.device.RunBatch(batch, s))
	require.NoError(t, g.LaunchGraph(g.ctx, x, s))
	g.store(0, 1)
	g.synchronize(s)
	for i := 10; i < 14; i++ {
		require.Equal(t, uint64(10*i), g.value(i))
	}
	for i := 1; i <= 8; i++ {
		require.Equal(t, uint64(10*i), g.value(i))
	}
	require.Equal(t, uint64(1000), g.value(9))
	require.NoError(t, g.DestroyGraphExec(x))
	require.NoError(t, g.DestroyGraph(graph))
}

// Rule 5: what a graph captured stays until the graph is destroyed, and closing
// detaches from it.
func TestRule05WhatAGraphCapturedStaysUntilItIsDestroyed(t *testing.T) {
	g := newGPU(t, 1)
	s := g.stream()
	memory, err := g.CreateMemory(g.ctx, 0, 4096)
	require.NoError(t, err)
	require.NoError(t, g.SetAll(memory.Address, 0, 4096, s))
	require.NoError(t, g.device.SetRegion(0, 1, 0, memory.Address, 4096))
	bump := g.load(func(b *plugin.Builder) {
		b.Track(func() {
			kernel(b, "increment", plugin.Address(b.Region(b.Const(1), b.Const(0), b.Const(8))))
			kernel(b, "await", place(b, 0), plugin.Value(b.Const(1), 8), plugin.Address(b.Abort()))
		})
	})
	graph := g.capture(s, func() {
		g.run(bump, s)
		g.run(bump, s)
	})
	x := g.instantiate(graph)
	require.NoError(t, g.LaunchGraph(g.ctx, x, s)) // held until word 0 is 1

	bump.Free()
	freed := false
	require.NoError(t, g.device.Later(func() error {
		freed = true
		return g.Unmap(g.ctx, memory)
	}))
	require.NoError(t, g.device.Close(), "does not wait for the graph, which runs")
	require.False(t, freed)
	require.Equal(t, 1, Detached())
	require.NoError(t, g.DestroyGraph(graph), "the executable is left")
	require.NoError(t, Collect())
	require.False(t, freed)

	g.store(0, 1)
	require.NoError(t, g.LaunchGraph(g.ctx, x, s))
	g.synchronize(s)
	got := make([]byte, 1)
	require.NoError(t, g.Read(g.ctx, got, memory.Address+8))
	require.Equal(t, byte(4), got[0], "two launches of two operations")

	require.NoError(t, g.DestroyGraphExec(x))
	require.False(t, freed, "nothing is freed in the driver's callback")
	other := g.newDevice(g.Driver, 1)
	require.True(t, freed, "by the next one that is made")
	require.Zero(t, Detached())
	require.NoError(t, other.Close())
	require.NoError(t, g.DestroyStream(g.ctx, s))
	require.Equal(t, []string{"1 allocations", "1 memory handles", "1 retained contexts"}, g.Leaks(),
		"the test's own alone")
}

// Rule 8: what is left on one GPU is not freed by a goroutine that works on another, which would wait for that GPU.
func TestRule08OneGPUIsNotFreedByAnother(t *testing.T) {
	g := newGPU(t, 1)
	s := g.stream()
	g.run(g.hold(0), s)
	freed := 0
	free := func() error { freed++; return nil }
	require.NoError(t, g.device.Later(free))
	require.Zero(t, freed, "an operation is in the stream")
	g.store(0, 1)
	g.synchronize(s)

	other, err := NewDevice(g.Driver, 1, 0, 1)
	require.NoError(t, err)
	mine := 0
	require.NoError(t, other.Later(func() error { mine++; return nil }))
	require.NoError(t, other.Close())
	require.Equal(t, []int{1, 0}, []int{mine, freed})

	require.NoError(t, g.device.Close())
	require.Equal(t, 1, freed)
	require.NoError(t, g.DestroyStream(g.ctx, s))
}

// Rule 5, for memory that goes while the communicator stays: it waits for the
// graphs captured before, not for later ones.
func TestRule05LaterWaitsForGraphsCapturedBefore(t *testing.T) {
	g := newGPU(t, 1)
	s := g.stream()
	p := g.bump(1)
	first := g.capture(s, func() { g.run(p, s) })
	freed := 0
	free := func() error { freed++; return nil }
	require.NoError(t, g.device.Later(free))
	second := g.capture(s, func() { g.run(p, s) })
	require.Zero(t, freed)
	require.NoError(t, g.DestroyGraph(first))
	require.NoError(t, Collect())
	require.Equal(t, 1, freed, "the second graph does not hold it")
	require.NoError(t, g.device.Later(free))
	require.Equal(t, 1, freed)
	require.NoError(t, g.DestroyGraph(second))
	require.NoError(t, Collect())
	require.Equal(t, 2, freed)

	g.run(g.hold(0), s)
	require.NoError(t, g.device.Later(free))
	require.Equal(t, 2, freed, "an operation is in the stream")
	g.store(0, 1)
	g.synchronize(s)
	require.NoError(t, g.device.Later(free))
	require.Equal(t, 4, freed)
}

// Rule 6: replays bypass the host, and eager operations between them are
// ordered by the stream.
func TestRule06ReplaysBypassTheHost(t *testing.T) {
	g := newGPU(t, 1)
	l := g.listen()
	s := g.stream()
	p := g.bump(1)
	graph := g.capture(s, func() {
		for range 10 {
			g.run(p, s)
		}
	})
	x := g.instantiate(graph)
	g.run(p, s)
	l.heard()
	for range 50 {
		require.NoError(t, g.LaunchGraph(g.ctx, x, s))
		require.Empty(t, l.heard())
		g.run(p, s)
		require.Equal(t, []string{"Submit"}, l.heard(), "one crossing for an eager operation, graphs or not")
	}
	g.synchronize(s)
	require.Equal(t, uint64(1+50*11), g.value(1))
	require.NoError(t, g.DestroyGraphExec(x))
	require.NoError(t, g.DestroyGraph(graph))
}

// Rule 7: under capture only what can be captured, also for the first operation
// in a capture, with tracks, a second stream and a history on another stream.
func TestRule07NothingButStreamWorkUnderCapture(t *testing.T) {
	g := newGPU(t, 1)
	l := g.listen()
	old, s, second := g.stream(), g.stream(), g.stream()
	p := g.tracks(3, 8)
	g.run(p, old)
	require.NoError(t, g.DestroyStream(g.ctx, old))
	e, err := g.NewEvent(g.ctx, false)
	require.NoError(t, err)
	changes := func() []string { // what was called but the asking whether streams are captured
		return slices.DeleteFunc(l.heard(), func(c string) bool { return c == "CaptureInfo" })
	}
	l.heard()
	graph := g.capture(s, func() {
		g.run(p, s)
		require.Equal(t, []string{"Submit", "RetainOnGraph", "Submit"}, changes(), "no allocation, registration or wait")
		g.run(p, s)
		require.Equal(t, []string{"Submit"}, changes())
		require.NoError(t, g.Driver.Record(g.ctx, e, s))
		require.NoError(t, g.WaitEvent(g.ctx, second, e))
		g.run(p, second)
		require.Equal(t, []string{"Submit"}, changes())
		require.NoError(t, g.Driver.Record(g.ctx, e, second))
		require.NoError(t, g.WaitEvent(g.ctx, s, e))
	})
	x := g.instantiate(graph)
	require.NoError(t, g.LaunchGraph(g.ctx, x, s))
	g.synchronize(s)
	require.NoError(t, g.Synchronize(g.ctx))
	for i := range 3 {
		require.Equal(t, uint64(4), g.value(8+i))
	}
	require.NoError(t, g.DestroyGraphExec(x))
	require.NoError(t, g.DestroyGraph(graph))
}

// tracks returns a plan whose n tracks increment words from the given one on.
func (g *gpu) tracks(n, first int) *DeviceProgram {
	return g.load(func(b *plugin.Builder) {
		for i := range n {
			b.Track(func() { kernel(b, "increment", place(b, first+i)) })
		}
	})
}

// Rule 11: what is done on one stream is done before what is done on another
// later. The increments are not atomic, so the race detector sees it too.
func TestRule11OperationsOfTwoStreamsAreOrdered(t *testing.T) {
	for name, streams := range map[string]func(g *gpu) [2]cuda.Stream{
		"two streams":           func(g *gpu) [2]cuda.Stream { return [2]cuda.Stream{g.stream(), g.stream()} },
		"the default stream":    func(g *gpu) [2]cuda.Stream { return [2]cuda.Stream{0, g.stream()} },
		"to the default stream": func(g *gpu) [2]cuda.Stream { return [2]cuda.Stream{g.stream(), 0} },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGPU(t, 1)
			s := streams(g)
			follow := g.follow(1)
			g.run(g.hold(0), s[0])
			for i := range 64 {
				follow(s[i/2%2], i)
			}
			done, err := g.StreamDone(g.ctx, s[1])
			require.NoError(t, err)
			require.False(t, done, "the second stream waits for the first")
			g.store(0, 1)
			g.synchronize(s[:]...)
			require.Zero(t, g.value(63), "out of order")
			require.Equal(t, uint64(64), g.value(1))
		})
	}
}

// Rule 11, for a stream that is gone when the next operation comes: it is not
// touched, and what was in it is waited for, also where the next stream has its
// handle.
func TestRule11AStreamThatIsGoneIsWaitedForAndNotTouched(t *testing.T) {
	for _, sameHandle := range []bool{true, false} {
		g := newGPU(t, 1)
		follow := g.follow(1)
		hold := g.hold(0)
		s := g.stream()
		for round := range 4 {
			g.store(0, 0)
			g.run(hold, s)
			follow(s, 2*round)
			gone := s
			if !sameHandle {
				s = g.stream()
			}
			require.NoError(t, g.DestroyStream(g.ctx, gone))
			if sameHandle {
				s = g.stream()
			}
			require.Equal(t, sameHandle, s == gone)
			follow(s, 2*round+1)
			done, err := g.StreamDone(g.ctx, s)
			require.NoError(t, err)
			require.False(t, done)
			g.store(0, 1)
			g.synchronize(s)
			require.Zero(t, g.value(63), "out of order")
			require.Equal(t, uint64(2*(round+1)), g.value(1))
		}
	}
}

// Rule 11, within a captured graph: the edge between two streams of the capture
// is in the graph, and nothing ties it to what was not captured.
func TestRule11StreamsOfACaptureAreOrderedInTheGraph(t *testing.T) {
	g := newGPU(t, 1)
	follow, outside, hold := g.follow(1), g.follow(2), g.hold(0)
	s, second, eager := g.stream(), g.stream(), g.stream()
	e, err := g.NewEvent(g.ctx, false)
	require.NoError(t, err)
	outside(eager, 0)
	graph := g.capture(s, func() {
		// The second stream joins before anything is in the first, so the order of
		// the two operations is the Device's alone.
		require.NoError(t, g.Record(g.ctx, e, s))
		require.NoError(t, g.WaitEvent(g.ctx, second, e))
		g.run(hold, s)
		for i := range 16 {
			follow([]cuda.Stream{s, second}[i/2%2], i)
		}
		outside(eager, 1) // not captured
		follow(second, 16)
		follow(s, 17)
	})
	g.synchronize(eager)
	require.Equal(t, uint64(2), g.value(2), "the eager operations waited for nothing captured")
	x := g.instantiate(graph)
	require.NoError(t, g.LaunchGraph(g.ctx, x, s))
	g.store(0, 1)
	g.synchronize(s)
	require.Zero(t, g.value(63), "out of order")
	require.Equal(t, uint64(18), g.value(1))
	require.NoError(t, g.DestroyGraphExec(x))
	require.NoError(t, g.DestroyGraph(graph))
}
