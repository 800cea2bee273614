package cudatest_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine returns a driver with one retained context, closed with the test.
func machine(t *testing.T, o cudatest.Options) (*cudatest.Driver, cuda.Context) {
	d := cudatest.New(o)
	t.Cleanup(d.Close)
	ctx, err := d.Retain(0)
	require.NoError(t, err)
	return d, ctx
}

// add is a kernel: the word at the address in its first parameter grows by the second.
func add(g cudatest.Grid) {
	p := binary.LittleEndian.Uint64(g.Launch.Params[0:])
	n := binary.LittleEndian.Uint64(g.Launch.Params[8:])
	atomic.AddUint64(*(**uint64)(unsafe.Pointer(&p)), n)
}

// await is a kernel: it spins until the word has reached a value.
func await(g cudatest.Grid) {
	p := binary.LittleEndian.Uint64(g.Launch.Params[0:])
	n := binary.LittleEndian.Uint64(g.Launch.Params[8:])
	for atomic.LoadUint64(*(**uint64)(unsafe.Pointer(&p))) < n {
		select {
		case <-g.Done:
			return
		default:
		}
	}
}

var kernels = map[string]cudatest.Kernel{"add": add, "await": await}

func launch(t *testing.T, d cuda.Driver, ctx cuda.Context, s cuda.Stream, name string, p cuda.Ptr, n uint64) {
	m, err := d.LoadModule(ctx, []byte{1})
	require.NoError(t, err)
	f, err := d.Function(ctx, m, name, 0)
	require.NoError(t, err)
	l := cuda.Launch{Function: f, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Bytes: 16}
	binary.LittleEndian.PutUint64(l.Params[0:], uint64(p))
	binary.LittleEndian.PutUint64(l.Params[8:], n)
	_, err = d.LaunchKernels(ctx, s, []cuda.Launch{l})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.UnloadModule(ctx, m)) })
}

func value(d *cudatest.Driver, p cuda.Ptr) uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&d.Bytes(p, 8)[0])))
}

func TestStreamsRunInOrderAndWaitForEvents(t *testing.T) {
	d, ctx := machine(t, cudatest.Options{Kernels: kernels})
	p, err := d.AllocHost(ctx, 16)
	require.NoError(t, err)
	first, err := d.NewStream(ctx, 0)
	require.NoError(t, err)
	second, err := d.NewStream(ctx, 0)
	require.NoError(t, err)
	e, err := d.NewEvent(ctx, true)
	require.NoError(t, err)

	launch(t, d, ctx, first, "await", p.Device, 1) // held until the test lets it go
	launch(t, d, ctx, first, "add", p.Device+8, 5)
	require.NoError(t, d.Record(ctx, e, first))
	require.NoError(t, d.WaitEvent(ctx, second, e))
	require.NoError(t, d.Copy(ctx, p.Device, p.Device+8, 8, second))
	done, err := d.StreamDone(ctx, second)
	require.NoError(t, err)
	require.False(t, done)
	done, err = d.EventDone(ctx, e)
	require.NoError(t, err)
	require.False(t, done)
	require.Zero(t, value(d, p.Device+8))

	atomic.StoreUint64((*uint64)(unsafe.Pointer(&d.Bytes(p.Device, 8)[0])), 1)
	require.NoError(t, d.SynchronizeStream(ctx, second))
	require.Equal(t, uint64(5), value(d, p.Device))
	done, err = d.EventDone(ctx, e)
	require.NoError(t, err)
	require.True(t, done)
}

func TestStreamMemoryOperations(t *testing.T) {
	d, ctx := machine(t, cudatest.Options{})
	p, err := d.AllocHost(ctx, 24)
	require.NoError(t, err)
	a, err := d.NewStream(ctx, 0)
	require.NoError(t, err)
	b, err := d.NewStream(ctx, 0)
	require.NoError(t, err)
	require.NoError(t, d.WaitValue(ctx, a, p.Device, 7))
	require.NoError(t, d.Set(ctx, p.Device+8, 0xFF, 8, a))
	require.NoError(t, d.WriteValue(ctx, b, p.Device, 8))
	require.NoError(t, d.Synchronize(ctx))
	require.Equal(t, ^uint64(0), value(d, p.Device+8))
	require.Error(t, d.WaitValue(ctx, a, p.Device+4, 1), "misaligned")
}

func TestGraphsReplayWhatWasCaptured(t *testing.T) {
	d, ctx := machine(t, cudatest.Options{Kernels: kernels})
	p, err := d.AllocHost(ctx, 8)
	require.NoError(t, err)
	s, err := d.NewStream(ctx, 0)
	require.NoError(t, err)
	side, err := d.NewStream(ctx, 0)
	require.NoError(t, err)
	e, err := d.NewEvent(ctx, false)
	require.NoError(t, err)

	require.NoError(t, d.BeginCapture(ctx, s))
	launch(t, d, ctx, s, "add", p.Device, 1)
	require.NoError(t, d.Record(ctx, e, s))
	require.NoError(t, d.WaitEvent(ctx, side, e), "fork")
	launch(t, d, ctx, side, "add", p.Device, 10)
	info, err := d.CaptureInfo(ctx, side)
	require.NoError(t, err)
	require.Equal(t, cuda.CaptureActive, info.Status)
	require.NoError(t, d.RetainOnGraph(info.Graph, 99))
	require.Equal(t, cuda.CaptureUnsupported, cuda.ResultOf(d.SynchronizeStream(ctx, s)),
		"a stream under capture cannot be waited for")
	require.NoError(t, d.Record(ctx, e, side))
	require.NoError(t, d.WaitEvent(ctx, s, e), "join")
	g, err := d.EndCapture(ctx, s)
	require.NoError(t, err)
	require.Equal(t, info.Graph, g)
	require.Zero(t, value(d, p.Device), "capturing runs nothing")

	x, err := d.Instantiate(ctx, g)
	require.NoError(t, err)
	require.NoError(t, d.DestroyGraph(g))
	for range 3 {
		require.NoError(t, d.LaunchGraph(ctx, x, s))
	}
	launch(t, d, ctx, side, "add", p.Device, 100) // no longer captured
	require.NoError(t, d.Synchronize(ctx))
	require.Equal(t, uint64(133), value(d, p.Device))

	buffer := make([]uint64, 4)
	require.Empty(t, d.Released(buffer), "the executable still holds the token")
	require.NoError(t, d.DestroyGraphExec(x))
	require.Equal(t, []uint64{99}, d.Released(buffer))
}

func TestCapturesRefuseWhatCUDARefuses(t *testing.T) {
	d, ctx := machine(t, cudatest.Options{Kernels: kernels})
	p, err := d.AllocHost(ctx, 8)
	require.NoError(t, err)
	s, err := d.NewStream(ctx, 0)
	require.NoError(t, err)
	side, err := d.NewStream(ctx, 0)
	require.NoError(t, err)
	e, err := d.NewEvent(ctx, false)
	require.NoError(t, err)
	eager, err := d.NewEvent(ctx, false)
	require.NoError(t, err)
	require.NoError(t, d.Record(ctx, eager, side))

	require.NoError(t, d.BeginCapture(ctx, s))
	require.Equal(t, cuda.CaptureIsolation, cuda.ResultOf(d.WaitEvent(ctx, s, eager)))
	require.NoError(t, d.Record(ctx, e, s))
	_, err = d.EventDone(ctx, e)
	require.Equal(t, cuda.CapturedEvent, cuda.ResultOf(err))
	require.NoError(t, d.WaitEvent(ctx, side, e))
	launch(t, d, ctx, side, "add", p.Device, 1)
	_, err = d.EndCapture(ctx, s)
	require.Equal(t, cuda.CaptureUnjoined, cuda.ResultOf(err))
	require.Equal(t, cuda.CapturedEvent, cuda.ResultOf(d.WaitEvent(ctx, side, e)))

	require.NoError(t, d.BeginCapture(ctx, s))
	require.Equal(t, cuda.CaptureUnsupported, cuda.ResultOf(d.RecordContext(ctx, eager)))
	_, err = d.EndCapture(ctx, s)
	require.Equal(t, cuda.CaptureInvalid, cuda.ResultOf(err))
}

func TestRecordContextWaitsForEveryStreamAlsoDestroyedOnes(t *testing.T) {
	d, ctx := machine(t, cudatest.Options{Kernels: kernels})
	p, err := d.AllocHost(ctx, 16)
	require.NoError(t, err)
	e, err := d.NewEvent(ctx, false)
	require.NoError(t, err)
	for i := range 2 {
		s, err := d.NewStream(ctx, 0)
		require.NoError(t, err)
		launch(t, d, ctx, s, "await", p.Device+cuda.Ptr(8*i), 1)
		if i == 1 {
			require.NoError(t, d.DestroyStream(ctx, s))
		}
	}
	require.NoError(t, d.RecordContext(ctx, e))
	for i := range 2 {
		done, err := d.EventDone(ctx, e)
		require.NoError(t, err)
		require.False(t, done)
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&d.Bytes(p.Device+cuda.Ptr(8*i), 8)[0])), 1)
	}
	s, err := d.NewStream(ctx, 0)
	require.NoError(t, err)
	require.NoError(t, d.WaitEvent(ctx, s, e))
	require.NoError(t, d.SynchronizeStream(ctx, s))
	done, err := d.EventDone(ctx, e)
	require.NoError(t, err)
	require.True(t, done)
}

func TestMemoryIsSharedByDescriptorAndByHandle(t *testing.T) {
	a, actx := machine(t, cudatest.Options{})
	b, bctx := machine(t, cudatest.Options{Devices: 2})

	m, err := a.CreateMemory(actx, 0, 100)
	require.NoError(t, err)
	require.Equal(t, int64(2<<20), m.Bytes)
	fd, err := a.ExportMemory(actx, m.Handle)
	require.NoError(t, err)
	n, err := b.ImportMemory(bctx, 1, fd, m.Bytes)
	require.NoError(t, err)
	require.NoError(t, a.Write(actx, m.Address+3, []byte("shared")))
	require.NoError(t, a.Unmap(actx, m), "what the exporter unmaps lives on")
	got := make([]byte, 6)
	require.NoError(t, b.Read(bctx, got, n.Address+3))
	require.Equal(t, "shared", string(got))
	_, err = b.ImportMemory(bctx, 0, fd, 3*m.Bytes)
	require.ErrorIs(t, err, plugin.InvalidArgument)
	require.NoError(t, unix.Close(fd))
	require.NoError(t, b.Unmap(bctx, n))

	p, err := a.Alloc(actx, 64)
	require.NoError(t, err)
	require.Equal(t, byte(0xCD), a.Bytes(p, 64)[63], "not zeroed")
	h, err := a.ExportIPC(actx, p+8)
	require.NoError(t, err)
	_, err = a.OpenIPC(actx, h)
	require.Error(t, err, "not in the exporting process")
	q, err := b.OpenIPC(bctx, h)
	require.NoError(t, err)
	require.NoError(t, b.Write(bctx, q, []byte("base")))
	require.Equal(t, "base", string(a.Bytes(p, 4)), "a handle covers the whole allocation")
	require.NoError(t, b.CloseIPC(bctx, q))
	require.NoError(t, a.Free(actx, p))
	require.Error(t, a.Free(actx, p), "twice")
}

// What is cleared is all of it and nothing beside it, wherever pages begin and whichever process has it mapped.
func TestMemoryIsClearedForEveryMapping(t *testing.T) {
	a, actx := machine(t, cudatest.Options{})
	b, bctx := machine(t, cudatest.Options{})
	const page = 4096
	for _, at := range []int64{0, 1, page - 1, page} {
		for _, n := range []int64{1, page - 1, page, page + 1, 3*page - 1, 100 * page} {
			m, err := a.CreateMemory(actx, 0, 1<<21)
			require.NoError(t, err)
			fd, err := a.ExportMemory(actx, m.Handle)
			require.NoError(t, err)
			peer, err := b.ImportMemory(bctx, 0, fd, m.Bytes)
			require.NoError(t, err)
			require.NoError(t, unix.Close(fd))
			want := bytes.Repeat([]byte{0xA5}, int(m.Bytes))
			require.NoError(t, b.Write(bctx, peer.Address, want))
			require.NoError(t, a.Set(actx, m.Address+cuda.Ptr(at), 0, n, 0))
			require.NoError(t, a.SynchronizeStream(actx, 0))
			clear(want[at : at+n])
			require.True(t, bytes.Equal(want, a.Bytes(m.Address, m.Bytes)), "%d bytes at %d", n, at)
			require.True(t, bytes.Equal(want, b.Bytes(peer.Address, m.Bytes)), "%d bytes at %d, as a peer sees them", n, at)
			require.NoError(t, b.Unmap(bctx, peer))
			require.NoError(t, a.Unmap(actx, m))
		}
	}
}

func TestRangesOfSeveralHandles(t *testing.T) {
	a, actx := machine(t, cudatest.Options{})
	b, bctx := machine(t, cudatest.Options{Devices: 2})
	var fds []int
	var bytes []int64
	for i := range 3 {
		m, err := a.CreateMemory(actx, 0, int64(i+1)<<21)
		require.NoError(t, err)
		fd, err := a.ExportMemory(actx, m.Handle)
		require.NoError(t, err)
		fds, bytes = append(fds, fd), append(bytes, m.Bytes)
		require.NoError(t, a.Unmap(actx, m))
	}
	segment, err := a.ImportRange(actx, 0, fds, bytes)
	require.NoError(t, err)
	require.Equal(t, int64(6)<<21, segment.Bytes)
	_, err = b.ImportRange(bctx, 0, fds, bytes[:2])
	require.ErrorIs(t, err, plugin.InvalidArgument)
	_, err = b.ImportRange(bctx, 0, fds, []int64{bytes[0], bytes[2], bytes[1]})
	require.ErrorIs(t, err, plugin.InvalidArgument)
	for _, fd := range fds {
		require.NoError(t, unix.Close(fd))
	}

	// A tensor in the second and the third chunk, as a peer maps it.
	tensor := segment.Address + 3<<21 - 5
	chunks, err := a.ExportRange(actx, tensor, 10, 2)
	require.NoError(t, err)
	fds, bytes = nil, nil
	for i, c := range chunks {
		require.Equal(t, segment.Chunks[1+i].Address, c.Address)
		require.Equal(t, segment.Chunks[1+i].Bytes, c.Bytes)
		fds, bytes = append(fds, c.FD), append(bytes, c.Bytes)
	}
	peer, err := b.ImportRange(bctx, 1, fds, bytes)
	require.NoError(t, err)
	for _, fd := range fds {
		require.NoError(t, unix.Close(fd))
	}
	require.NoError(t, a.Write(actx, tensor, []byte("0123456789")))
	require.Equal(t, "0123456789", string(b.Bytes(peer.Address+tensor-chunks[0].Address, 10)))

	_, err = a.ExportRange(actx, tensor, 1<<30, 3)
	require.ErrorIs(t, err, plugin.InvalidArgument, "past the end")
	_, err = a.ExportRange(actx, tensor, 10, 1)
	require.ErrorIs(t, err, plugin.Unsupported, "two chunks")
	require.NoError(t, a.UnmapRange(actx, segment))
	require.NoError(t, b.UnmapRange(bctx, peer))
	require.Error(t, b.UnmapRange(bctx, peer), "twice")
	require.Equal(t, []string{"1 retained contexts"}, a.Leaks())
	require.Equal(t, []string{"1 retained contexts"}, b.Leaks())
}

func TestPointersAreDescribed(t *testing.T) {
	d, ctx := machine(t, cudatest.Options{})
	p, err := d.Alloc(ctx, 4096)
	require.NoError(t, err)
	info, err := d.Pointer(ctx, p+4095)
	require.NoError(t, err)
	require.Equal(t, cuda.PointerDevice, info.Kind)
	require.Equal(t, p, info.Base)
	require.Equal(t, int64(4096), info.Bytes)
	require.True(t, info.LegacyIPC)
	require.False(t, info.Shareable)
	m, err := d.CreateMemory(ctx, 0, 1)
	require.NoError(t, err)
	shareable, err := d.Pointer(ctx, m.Address)
	require.NoError(t, err)
	require.True(t, shareable.Shareable)
	require.NotEqual(t, info.BufferID, shareable.BufferID)
	var local int
	none, err := d.Pointer(ctx, cuda.Ptr(uintptr(unsafe.Pointer(&local))))
	require.NoError(t, err)
	require.Equal(t, cuda.PointerUnknown, none.Kind)
}

func TestInjectedErrorsAndLeaks(t *testing.T) {
	d, ctx := machine(t, cudatest.Options{})
	d.Fail("CreateMemory", 1, cuda.OutOfMemory)
	m, err := d.CreateMemory(ctx, 0, 1)
	require.NoError(t, err)
	_, err = d.CreateMemory(ctx, 0, 1)
	require.EqualError(t, err, "cuMemCreate of 1 bytes on device 0: CUDA_ERROR_OUT_OF_MEMORY (out of memory)")
	require.ErrorIs(t, err, plugin.OutOfMemory)
	s, err := d.NewStream(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"1 allocations", "1 memory handles", "1 streams", "1 retained contexts"}, d.Leaks())
	require.NoError(t, d.Unmap(ctx, m))
	require.NoError(t, d.DestroyStream(ctx, s))
	require.NoError(t, d.Release(0))
	require.Empty(t, d.Leaks())
	_, err = d.Alloc(ctx, 1)
	require.Equal(t, cuda.InvalidContext, cuda.ResultOf(err), "a released context is dead")
}

func TestKernelsOfTwoDriversCanWaitForEachOther(t *testing.T) {
	a, actx := machine(t, cudatest.Options{Kernels: kernels})
	b, bctx := machine(t, cudatest.Options{Kernels: kernels})
	m, err := a.CreateMemory(actx, 0, 16)
	require.NoError(t, err)
	fd, err := a.ExportMemory(actx, m.Handle)
	require.NoError(t, err)
	n, err := b.ImportMemory(bctx, 0, fd, m.Bytes)
	require.NoError(t, err)
	require.NoError(t, unix.Close(fd))
	launch(t, a, actx, 0, "await", m.Address, 1)
	launch(t, b, bctx, 0, "add", n.Address, 1)
	launch(t, b, bctx, 0, "await", n.Address+8, 1)
	launch(t, a, actx, 0, "add", m.Address+8, 1)
	require.NoError(t, a.Synchronize(actx))
	require.NoError(t, b.Synchronize(bctx))
}

// cuMemFree waits for kernels, and other threads for it.
func TestFreesThatWait(t *testing.T) {
	d, ctx := machine(t, cudatest.Options{Kernels: kernels})
	word, err := d.AllocHost(ctx, 8)
	require.NoError(t, err)
	p, err := d.Alloc(ctx, 8)
	require.NoError(t, err)
	s, err := d.NewStream(ctx, 0)
	require.NoError(t, err)
	launch(t, d, ctx, s, "await", word.Device, 1)
	d.FreesWait()
	require.False(t, d.Freeing())
	freed, made := make(chan error, 1), make(chan error, 1)
	go func() { freed <- d.Free(ctx, p) }()
	require.Eventually(t, d.Freeing, 10*time.Second, time.Millisecond)
	go func() {
		_, err := d.CreateMemory(ctx, 0, 1)
		made <- err
	}()
	select {
	case <-freed:
		t.Error("the free has not waited for the kernel")
	case <-made:
		t.Error("a call has not waited for the free")
	case <-time.After(20 * time.Millisecond):
	}
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&d.Bytes(word.Device, 8)[0])), 1)
	require.NoError(t, <-freed)
	require.NoError(t, <-made)
	require.False(t, d.Freeing())
}

// Memory is not zeroed, wherever a caller might not have cleared it; and what is cleared is, all of it.
func TestNewMemoryIsNotZeroed(t *testing.T) {
	d, ctx := machine(t, cudatest.Options{})
	m, err := d.CreateMemory(ctx, 0, 5<<20)
	require.NoError(t, err)
	p, err := d.Alloc(ctx, m.Bytes)
	require.NoError(t, err)
	for _, at := range []int64{0, 4096, 1 << 20, 2<<20 - 1, 2 << 20, 4<<20 - 1, 4 << 20, m.Bytes - 1} {
		require.Equal(t, byte(0xCD), d.Bytes(m.Address, m.Bytes)[at], "byte %d of CreateMemory", at)
		require.Equal(t, byte(0xCD), d.Bytes(p, m.Bytes)[at], "byte %d of Alloc", at)
	}
	require.NoError(t, d.Set(ctx, m.Address, 0, m.Bytes, 0))
	require.NoError(t, d.Synchronize(ctx))
	require.Equal(t, make([]byte, m.Bytes), d.Bytes(m.Address, m.Bytes))
}

// A kernel whose module is unloaded before it begins, in a stream or in a graph, is a hazard.
func TestKernelsOfUnloadedModules(t *testing.T) {
	d, ctx := machine(t, cudatest.Options{Kernels: kernels})
	words, err := d.AllocHost(ctx, 16)
	require.NoError(t, err)
	s, err := d.NewStream(ctx, 0)
	require.NoError(t, err)
	m, err := d.LoadModule(ctx, []byte{1})
	require.NoError(t, err)
	add := func(n uint64) {
		f, err := d.Function(ctx, m, "add", 0)
		require.NoError(t, err)
		l := cuda.Launch{Function: f, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Bytes: 16}
		binary.LittleEndian.PutUint64(l.Params[0:], uint64(words.Device))
		binary.LittleEndian.PutUint64(l.Params[8:], n)
		_, err = d.LaunchKernels(ctx, s, []cuda.Launch{l})
		require.NoError(t, err)
	}
	require.NoError(t, d.BeginCapture(ctx, s))
	add(1)
	g, err := d.EndCapture(ctx, s)
	require.NoError(t, err)
	x, err := d.Instantiate(ctx, g)
	require.NoError(t, err)
	require.NoError(t, d.LaunchGraph(ctx, x, s))
	add(10)
	require.NoError(t, d.SynchronizeStream(ctx, s))
	require.Empty(t, d.Hazards())

	launch(t, d, ctx, s, "await", words.Device+8, 1)
	add(100)
	require.NoError(t, d.UnloadModule(ctx, m))
	require.NoError(t, d.LaunchGraph(ctx, x, s))
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&d.Bytes(words.Device+8, 8)[0])), 1)
	require.NoError(t, d.SynchronizeStream(ctx, s))
	require.Equal(t, slices.Repeat([]string{"kernel add began after its module was unloaded"}, 2), d.Hazards())
}
