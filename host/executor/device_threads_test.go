package executor

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
)

// Rule 11, for the streams of threads, which have one handle: also where the driver
// does not tell them apart.
func TestRule11StreamsOfThreadsAreOrdered(t *testing.T) {
	for _, told := range []bool{true, false} {
		g := newGPUOf(t, cudatest.Options{Kernels: deviceKernels, NoStreamIDs: !told}, 1)
		follow, hold := g.follow(1), g.hold(0)
		thread := make(chan func())
		done := make(chan bool)
		go func() {
			runtime.LockOSThread()
			defer close(done) // also when f fails the test, which ends this goroutine alone
			for f := range thread {
				f()
				done <- true
			}
		}()
		other := func(f func()) {
			thread <- f
			require.True(t, <-done, "the other thread failed")
		}
		func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			g.run(hold, cuda.PerThreadStream)
			for i := 0; i < 16; i += 2 {
				other(func() { follow(cuda.PerThreadStream, i) })
				follow(cuda.PerThreadStream, i+1)
			}
			other(func() {
				ended, err := g.StreamDone(g.ctx, cuda.PerThreadStream)
				require.NoError(t, err)
				require.False(t, ended, "the other thread's stream waits for this one's")
			})
			g.store(0, 1)
			g.synchronize(cuda.PerThreadStream)
			other(func() { g.synchronize(cuda.PerThreadStream) })
		}()
		close(thread)
		require.Zero(t, g.value(63), "out of order")
		require.Equal(t, uint64(16), g.value(1))
	}
}

// Rule 11, for the streams of threads that have joined one capture: what is captured next from whichever thread, and
// called on whichever, comes behind.
func TestRule11StreamsOfThreadsAreOrderedInTheGraph(t *testing.T) {
	for _, next := range []string{"the stream of another thread", "another stream, called by another thread"} {
		g := newGPU(t, 1)
		follow, hold := g.follow(1), g.hold(0)
		second, launched := g.stream(), g.stream()
		e, err := g.NewEvent(g.ctx, false)
		require.NoError(t, err)
		other := func(f func()) {
			done := make(chan bool)
			go func() {
				runtime.LockOSThread()
				defer close(done)
				f()
				done <- true
			}()
			require.True(t, <-done, "the other thread failed")
		}
		runtime.LockOSThread()
		graph := g.capture(cuda.PerThreadStream, func() {
			// The streams join before anything is in the first.
			require.NoError(t, g.Record(g.ctx, e, cuda.PerThreadStream))
			require.NoError(t, g.WaitEvent(g.ctx, second, e))
			g.run(hold, cuda.PerThreadStream)
			follow(cuda.PerThreadStream, 0)
			other(func() {
				s := second
				if next == "the stream of another thread" {
					s = cuda.PerThreadStream
					require.NoError(t, g.WaitEvent(g.ctx, s, e))
				}
				follow(s, 1)
				follow(s, 2)
				require.NoError(t, g.Record(g.ctx, e, s))
			})
			follow(cuda.PerThreadStream, 3)
			require.NoError(t, g.WaitEvent(g.ctx, cuda.PerThreadStream, e))
		})
		runtime.UnlockOSThread()
		x := g.instantiate(graph)
		require.NoError(t, g.LaunchGraph(g.ctx, x, launched))
		g.store(0, 1)
		g.synchronize(launched)
		require.Zero(t, g.value(63), "%s: out of order", next)
		require.Equal(t, uint64(4), g.value(1), next)
		require.NoError(t, g.DestroyGraphExec(x))
		require.NoError(t, g.DestroyGraph(graph))
	}
}
