package pool

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
)

// What was allocated or freed in a capture is the graph's as long as it, or an executable, exists.
func TestGraphsKeepMemory(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprint("ordered ", ordered), func(t *testing.T) {
			b := newBench(t, ordered, 2)
			b.add(Granularity)
			ctx := b.gpu.Context
			before := b.alloc(4096, 0)
			recorded := b.alloc(4096, 1)
			require.NoError(t, b.driver.BeginCapture(ctx, b.streams[0]))
			during := b.alloc(4096, 0)
			b.release(during, 0)
			require.Equal(t, during, b.alloc(4096, 0), "in the capture's order it is reused")
			b.release(before, 0)
			require.NoError(t, b.pool.RecordStream(recorded, b.streams[0]))
			graph, err := b.driver.EndCapture(ctx, b.streams[0])
			require.NoError(t, err)
			b.release(during, 1) // allocated in it
			b.release(recorded, 1)
			exec, err := b.driver.Instantiate(ctx, graph)
			require.NoError(t, err)
			require.NoError(t, b.driver.DestroyGraph(graph))
			require.NoError(t, b.driver.Synchronize(ctx))
			b.agree()
			held := []cuda.Ptr{before, during, recorded}
			var others []cuda.Ptr
			for p := b.alloc(4096, 0); p != 0; p = b.alloc(4096, 0) {
				require.NotContains(t, held, p, "a replay would write into it")
				others = append(others, p)
			}
			require.NoError(t, b.driver.Synchronize(ctx))
			require.Empty(t, b.pool.Idle(true))
			require.NoError(t, b.driver.DestroyGraphExec(exec))
			b.agree()
			for range held {
				p := b.alloc(4096, 1)
				require.Contains(t, held, p)
				others = append(others, p)
			}
			for _, p := range others {
				b.release(p, 0)
			}
		})
	}
}

// Memory of two graphs that one stream was captured into goes with its own graph, though the blocks lie side by side.
func TestGraphsOfOneStreamKeepTheirOwnMemory(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		for first := range 2 {
			b := newBench(t, ordered, 1)
			b.add(Granularity)
			const block = Granularity / 8
			ctx := b.gpu.Context
			var graphs [2]cuda.Graph
			var held [2]cuda.Ptr
			for i := range graphs {
				require.NoError(t, b.driver.BeginCapture(ctx, b.streams[0]))
				held[i] = b.alloc(block, 0)
				var err error
				graphs[i], err = b.driver.EndCapture(ctx, b.streams[0])
				require.NoError(t, err)
			}
			require.NotEqual(t, held[0], held[1])
			var taken []cuda.Ptr
			all := func() {
				require.NoError(t, b.driver.Synchronize(ctx))
				b.agree()
				for p := b.alloc(block, 0); p != 0; p = b.alloc(block, 0) {
					taken = append(taken, p)
				}
			}
			all()
			for _, p := range held {
				b.release(p, 0)
			}
			all()
			require.Len(t, taken, Granularity/block-2)
			require.NoError(t, b.driver.DestroyGraph(graphs[first]))
			all()
			require.NotContains(t, taken, held[1-first], "a replay would write into it")
			require.Contains(t, taken, held[first])
			require.NoError(t, b.driver.DestroyGraph(graphs[1-first]))
			all()
			require.Subset(t, taken, held)
			for _, p := range taken {
				b.release(p, 0)
			}
		}
	}
}

// A graph keeps what it was captured with, and nothing that lies beside it.
func TestGraphsKeepNoNeighbours(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		for _, during := range []bool{false, true} { // the capture, or after it
			b := newBench(t, ordered, 2)
			b.add(Granularity)
			const block = Granularity / 8
			ctx := b.gpu.Context
			before := b.alloc(block, 0)
			require.NoError(t, b.driver.BeginCapture(ctx, b.streams[0]))
			held := b.alloc(block, 0)
			if during {
				b.release(held, 0)
			}
			graph, err := b.driver.EndCapture(ctx, b.streams[0])
			require.NoError(t, err)
			if !during {
				b.release(held, 0)
			}
			b.release(before, 0)
			require.NoError(t, b.driver.Synchronize(ctx))
			b.agree()
			b.check()
			rest := b.alloc(6*block, 1)
			require.NotZero(t, rest, "all that lies behind, for another stream")
			b.release(rest, 1)
			require.NoError(t, b.driver.Synchronize(ctx))
			b.agree()
			require.NoError(t, b.driver.BeginCapture(ctx, b.streams[1]))
			rest = b.alloc(6*block, 1)
			require.NotZero(t, rest, "and for another graph")
			other, err := b.driver.EndCapture(ctx, b.streams[1])
			require.NoError(t, err)
			b.release(rest, 1)
			require.Equal(t, before, b.alloc(block, 0), "what lies before")
			b.release(before, 0)
			require.NoError(t, b.driver.Synchronize(ctx))
			require.Empty(t, b.pool.Idle(true))
			for _, g := range []cuda.Graph{other, graph} {
				require.NoError(t, b.driver.DestroyGraph(g))
				b.agree()
				b.check()
			}
			whole := b.alloc(Granularity, 1)
			require.NotZero(t, whole, "one piece again")
			b.release(whole, 1)
		}
	}
}

// A capture gets no memory that work outside of it may still use: its replays come at any time.
func TestCapturesGetIdleMemory(t *testing.T) {
	b := newBench(t, false, 2)
	b.add(Granularity)
	p := b.alloc(Granularity, 0)
	b.shut(0)
	b.release(p, 0)
	other := b.streams[1]
	require.NoError(t, b.driver.BeginCapture(b.gpu.Context, other))
	require.Zero(t, b.alloc(512, 1))
	b.open(0)
	require.Equal(t, p, b.alloc(512, 1))
	graph, err := b.driver.EndCapture(b.gpu.Context, other)
	require.NoError(t, err)
	b.release(p, 1)
	require.NoError(t, b.driver.DestroyGraph(graph))
}
