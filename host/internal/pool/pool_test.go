package pool

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// bench is a driver, a pool and streams that a test can hold up.
type bench struct {
	*testing.T
	driver  *cudatest.Driver
	gpu     GPU
	pool    *Pool
	streams []cuda.Stream
	word    cuda.HostMemory // streams wait for its values
	gates   []uint64        // reached by each stream
}

func newBench(t *testing.T, ordered bool, streams int) *bench {
	t.Helper()
	return newBenchOf(t, cudatest.Options{}, ordered, streams)
}

func newBenchOf(t *testing.T, o cudatest.Options, ordered bool, streams int) *bench {
	t.Helper()
	b := &bench{T: t, driver: cudatest.New(o)}
	context, err := b.driver.Retain(0)
	require.NoError(t, err)
	b.gpu = GPU{Driver: b.driver, Context: context}
	b.pool = New(b.gpu, ordered, func(g cuda.Graph) (Graph, error) { return executor.UseGraph(b.driver, g) })
	b.word, err = b.driver.AllocHost(context, int64(8*streams))
	require.NoError(t, err)
	for range streams {
		s, err := b.driver.NewStream(context, 0)
		require.NoError(t, err)
		b.streams = append(b.streams, s)
	}
	b.gates = make([]uint64, streams)
	t.Cleanup(func() {
		for i := range b.streams { // all of them, as one may wait for another
			b.write(i)
		}
		require.NoError(t, b.driver.Synchronize(context))
		for _, s := range b.pool.Idle(true) {
			require.NoError(t, b.driver.Unmap(context, s.Mapping))
		}
		require.Zero(t, b.pool.Stats().Segments, "something is still in use")
		require.NoError(t, b.pool.Close())
		for _, s := range b.streams {
			require.NoError(t, b.driver.DestroyStream(context, s))
		}
		require.NoError(t, b.driver.FreeHost(context, b.word))
		require.NoError(t, b.driver.Release(0))
		require.Empty(t, b.driver.Leaks())
		b.driver.Close()
	})
	return b
}

// shut holds a stream up from here on, until open.
func (b *bench) shut(i int) {
	b.gates[i]++
	require.NoError(b, b.driver.WaitValue(b.gpu.Context, b.streams[i], b.word.Device+cuda.Ptr(8*i), b.gates[i]))
}

func (b *bench) open(i int) {
	b.Helper()
	p := b.word.Device + cuda.Ptr(8*i)
	bytes := make([]byte, 8)
	for k := range bytes {
		bytes[k] = byte(b.gates[i] >> (8 * k))
	}
	require.NoError(b, b.driver.Write(b.gpu.Context, p, bytes))
	require.NoError(b, b.driver.SynchronizeStream(b.gpu.Context, b.streams[i]))
}

func (b *bench) add(bytes int64) {
	b.Helper()
	m, err := b.driver.CreateMemory(b.gpu.Context, 0, bytes)
	require.NoError(b, err)
	b.pool.Add(m, nil)
}

func (b *bench) alloc(bytes int64, stream int) cuda.Ptr {
	b.Helper()
	p, err := b.pool.Alloc(Rounded(bytes), b.streams[stream])
	require.NoError(b, err)
	return p
}

func (b *bench) release(p cuda.Ptr, stream int) {
	b.Helper()
	require.NoError(b, b.pool.Free(p, b.streams[stream]))
}

// The stream that freed memory gets it again at once; another one when the first has come past the free.
func TestReuseInStreamOrder(t *testing.T) {
	b := newBench(t, false, 2)
	b.add(Granularity)
	p := b.alloc(Granularity, 0)
	b.shut(0)
	b.release(p, 0)
	require.Zero(t, b.alloc(512, 1), "stream 0 still uses it")
	require.Equal(t, p, b.alloc(Granularity, 0))
	b.release(p, 0)
	b.open(0)
	require.Equal(t, p, b.alloc(Granularity, 1))
	b.release(p, 1)
}

// Streams that were recorded on memory hold it back, whichever stream wants it.
func TestRecordedStreamsHoldMemoryBack(t *testing.T) {
	b := newBench(t, false, 3)
	b.add(Granularity)
	p := b.alloc(Granularity, 0)
	require.NoError(t, b.pool.RecordStream(p, b.streams[1]))
	b.shut(1)
	b.release(p, 0)
	for _, s := range []int{0, 2} {
		require.Zero(t, b.alloc(512, s), "stream 1 still uses it")
	}
	require.Empty(t, b.pool.Idle(true))
	b.open(1)
	require.NoError(t, b.driver.Synchronize(b.gpu.Context)) // stream 0 uses it too
	require.Equal(t, p, b.alloc(512, 2))
	b.release(p, 2)
}

// Each of several streams that were recorded on memory holds it back, however often and in whatever order they were.
func TestEachRecordedStreamHoldsMemoryBack(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		for last := 1; last <= 3; last++ {
			b := newBench(t, ordered, 5)
			b.add(Granularity)
			p := b.alloc(Granularity, 0)
			for _, s := range []int{1, 2, 1, 3, 2} {
				require.NoError(t, b.pool.RecordStream(p, b.streams[s]))
			}
			b.shut(last)
			b.release(p, 0)
			require.Empty(t, b.pool.Idle(true), "stream %d still uses it", last)
			if ordered {
				require.Equal(t, p, b.alloc(512, 4), "and stream 4 waits for it")
				done, err := b.driver.StreamDone(b.gpu.Context, b.streams[4])
				require.NoError(t, err)
				require.False(t, done, "before stream %d is there", last)
			} else {
				require.Zero(t, b.alloc(512, 4), "stream %d still uses it", last)
			}
			b.open(last)
			require.NoError(t, b.driver.Synchronize(b.gpu.Context))
			if !ordered {
				require.Equal(t, p, b.alloc(512, 4))
			}
			b.release(p, 4)
			b.agree()
		}
	}
}

// An ordered pool gives memory to another stream at once, which then waits.
func TestOrderedPoolMakesStreamsWait(t *testing.T) {
	b := newBench(t, true, 2)
	b.add(Granularity)
	p := b.alloc(Granularity, 0)
	b.shut(0)
	b.release(p, 0)
	require.Equal(t, p, b.alloc(Granularity, 1))
	done, err := b.driver.StreamDone(b.gpu.Context, b.streams[1])
	require.NoError(t, err)
	require.False(t, done, "stream 1 waits for stream 0")
	b.open(0)
	require.NoError(t, b.driver.SynchronizeStream(b.gpu.Context, b.streams[1]))
	b.release(p, 1)
}

// Where an ordered pool puts blocks follows from the calls alone: ranks whose streams are past other points place
// alike.
func TestOrderedPoolsPlaceAlike(t *testing.T) {
	const streams = 3
	quick, slow := newBench(t, true, streams), newBench(t, true, streams)
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var live [][2]cuda.Ptr
	for range 1000 {
		s := random.IntN(streams)
		switch k := random.IntN(10); {
		case k < 5:
			n := Rounded(1 + int64(random.ExpFloat64()*100_000))
			at := [2]cuda.Ptr{quick.alloc(n, s), slow.alloc(n, s)}
			require.Equal(t, at[0] == 0, at[1] == 0, "one pool has %d bytes, and the other one not", n)
			if at[0] == 0 {
				quick.add(Granularity)
				slow.add(Granularity)
				continue
			}
			require.Equal(t, quick.place(at[0]), slow.place(at[1]))
			live = append(live, at)
		case k < 9 && len(live) > 0:
			i := random.IntN(len(live))
			if k == 5 {
				require.NoError(t, quick.pool.RecordStream(live[i][0], quick.streams[s]))
				require.NoError(t, slow.pool.RecordStream(live[i][1], slow.streams[s]))
			}
			quick.release(live[i][0], s)
			slow.release(live[i][1], s)
			live = slices.Delete(live, i, i+1)
			require.NoError(t, quick.driver.Synchronize(quick.gpu.Context))
		default:
			slow.shut(s)
		}
	}
	for _, at := range live {
		quick.release(at[0], 0)
		slow.release(at[1], 0)
	}
	for s := range streams {
		slow.write(s)
	}
}

// place is the segment and the offset of an address.
func (b *bench) place(p cuda.Ptr) [2]int64 {
	for i, s := range b.pool.segments {
		if p-s.Address < cuda.Ptr(s.Bytes) {
			return [2]int64{int64(i), int64(p - s.Address)}
		}
	}
	return [2]int64{-1, -1}
}

// A stream that has the handle of a destroyed one is another stream: what that one was given may still run.
func TestReusedHandleIsAnotherStream(t *testing.T) {
	b := newBench(t, false, 1)
	b.add(Granularity)
	p := b.alloc(Granularity, 0)
	b.shut(0)
	b.release(p, 0)
	before := b.streams[0]
	require.NoError(t, b.driver.DestroyStream(b.gpu.Context, before))
	after, err := b.driver.NewStream(b.gpu.Context, 0)
	require.NoError(t, err)
	require.Equal(t, before, after, "the driver uses handles again")
	require.Zero(t, b.alloc(512, 0), "the destroyed stream still uses it")
	b.write(0)
	require.NoError(t, b.driver.Synchronize(b.gpu.Context))
	require.Equal(t, p, b.alloc(512, 0))
	b.release(p, 0)
}

// Threads that free and allocate in their own streams, which have one handle, are ordered by nothing.
func TestThreadsOwnStreamsAreSeveral(t *testing.T) {
	for _, unnumbered := range []bool{false, true} {
		t.Run(fmt.Sprint("unnumbered ", unnumbered), func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			b := newBenchOf(t, cudatest.Options{NoStreamIDs: unnumbered}, false, 1)
			b.add(Granularity)
			b.streams = append(b.streams, cuda.PerThreadStream)
			defer func() { b.streams = b.streams[:1] }()
			elsewhere := func() (p cuda.Ptr, err error) {
				var other sync.WaitGroup
				other.Go(func() {
					runtime.LockOSThread() // and ends with its goroutine
					p, err = b.pool.Alloc(Granularity, cuda.PerThreadStream)
				})
				other.Wait()
				return p, err
			}
			p := b.alloc(Granularity, 1)
			b.gates[0]++
			require.NoError(t, b.driver.WaitValue(b.gpu.Context, cuda.PerThreadStream, b.word.Device, b.gates[0]))
			b.release(p, 1)
			other, err := elsewhere()
			require.NoError(t, err)
			require.Zero(t, other, "this thread's stream still uses it")
			require.Equal(t, p, b.alloc(Granularity, 1))
			b.release(p, 1)
			b.open(0)
			require.NoError(t, b.driver.SynchronizeStream(b.gpu.Context, cuda.PerThreadStream))
			other, err = elsewhere()
			require.NoError(t, err)
			require.Equal(t, p, other)
			require.ErrorIs(t, b.pool.RecordStream(p, cuda.PerThreadStream), plugin.InvalidArgument,
				"another thread that frees cannot wait for it")
			b.release(p, 0)
		})
	}
}

// agree runs the collective steps of the ranks of an ordered pool.
func (b *bench) agree() {
	if snapshot, passed := b.pool.Passed(); b.pool.ordered {
		b.pool.Agreed(snapshot, passed)
	}
}

// A driver error leaves everything as it was, and no event is lost.
func TestFailuresChangeNothing(t *testing.T) {
	for _, method := range []string{"NewEvent", "Submit", "Record"} {
		t.Run(method, func(t *testing.T) {
			b := newBench(t, false, 1)
			b.add(Granularity)
			p := b.alloc(512, 0)
			before := b.pool.Stats()
			b.driver.Fail(method, 0, cuda.OutOfMemory)
			require.Error(t, b.pool.Free(p, b.streams[0]))
			require.Equal(t, before, b.pool.Stats())
			b.release(p, 0)
		})
	}
	b := newBench(t, true, 2)
	b.add(Granularity)
	p := b.alloc(Granularity, 0)
	b.release(p, 0)
	b.driver.Fail("WaitEvent", 0, cuda.OutOfMemory)
	_, err := b.pool.Alloc(512, b.streams[1])
	require.Error(t, err)
	require.Zero(t, b.pool.Stats().Blocks)
}

// write opens a gate without waiting for the stream, which may wait for another one.
func (b *bench) write(i int) {
	bytes := make([]byte, 8)
	for k := range bytes {
		bytes[k] = byte(b.gates[i] >> (8 * k))
	}
	require.NoError(b, b.driver.Write(b.gpu.Context, b.word.Device+cuda.Ptr(8*i), bytes))
}
