package cuda_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/internal/builttest"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake compiles testdata/fake.c, once, and loads it as the driver. Its table is
// the process's, as the real one's.
var fake = sync.OnceValues(func() (cuda.Driver, error) {
	dir, err := os.MkdirTemp("", "fakecuda")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	lib := filepath.Join(dir, "libcuda.so.1")
	if out, err := builttest.Command("cc", "-shared", "-fPIC", "-o", lib, "testdata/fake.c").CombinedOutput(); err != nil {
		return nil, plugin.Errorf(plugin.System, "cc: %w: %s", err, out)
	}
	return cuda.Load(lib)
})

func driver(t testing.TB) cuda.Driver {
	d, err := fake()
	require.NoError(t, err)
	return d
}

func TestNoDriverIsAnErrorThatSaysSo(t *testing.T) {
	_, err := cuda.Load("/nonexistent/libcuda.so.1")
	require.ErrorIs(t, err, plugin.Unsupported)
	require.ErrorIs(t, err, cuda.ErrNoDriver)
	require.ErrorContains(t, err, "no CUDA driver: /nonexistent/libcuda.so.1")
}

func TestMissingFunctionIsNamedWithTheDriversVersion(t *testing.T) {
	d := driver(t)
	_, err := d.CreateMemory(0x1000, 0, 4096)
	require.ErrorIs(t, err, plugin.Unsupported)
	require.ErrorContains(t, err, "CUDA 12.8, has no function cuMemGetAllocationGranularity")
	_, err = d.CanAccess(0, 1)
	require.ErrorContains(t, err, "cuDeviceCanAccessPeer of devices 0 and 1")
	require.ErrorContains(t, err, "has no function cuDeviceCanAccessPeer")
	_, err = d.OpenIPC(0x1000, cuda.IPCHandle{})
	require.ErrorContains(t, err, "has no function cuIpcOpenMemHandle_v2")
}

func TestDevices(t *testing.T) {
	devices, err := driver(t).Devices()
	require.NoError(t, err)
	require.Len(t, devices, 2)
	require.Equal(t, "Fake B", devices[1].Name)
	require.Equal(t, "GPU-01020304-0506-0708-090a-0b0c0d0e0f10", devices[1].UUIDString())
	require.Equal(t, "0000:18:00.0", devices[1].Bus)
	require.Equal(t, int64(81)<<30, devices[1].Memory)
	require.Equal(t, 75, devices[0].Major)
	require.Equal(t, 76, devices[0].Minor)
	require.Equal(t, 16, devices[0].Multiprocessors)
	require.True(t, devices[0].VirtualMemory)
	require.Equal(t, 126, devices[0].Domains)
	require.False(t, devices[0].StreamMemoryOps, "an attribute that the driver does not know reads as no")
}

func TestCallsRunInTheirContextAndPutTheCallersBack(t *testing.T) {
	d := driver(t)
	ctx, err := d.Retain(1)
	require.NoError(t, err)
	p, err := d.Alloc(ctx, 100)
	require.NoError(t, err)
	require.Equal(t, cuda.Ptr(ctx), p, "the allocation ran in the context that was asked for")
	current, err := cuda.Current()
	require.NoError(t, err)
	require.Equal(t, cuda.Context(0xAA), current)
	_, err = d.Alloc(ctx, 2<<20)
	require.Error(t, err)
	current, err = cuda.Current()
	require.NoError(t, err)
	require.Equal(t, cuda.Context(0xAA), current, "after a failure too")
}

func TestErrorsCarryCallNameAndText(t *testing.T) {
	_, err := driver(t).Alloc(0x1000, 2<<20)
	require.EqualError(t, err, "cuMemAlloc of 2097152 bytes: CUDA_ERROR_OUT_OF_MEMORY (out of memory)")
	require.ErrorIs(t, err, plugin.OutOfMemory)
	require.Equal(t, cuda.OutOfMemory, cuda.ResultOf(err))
	_, err = driver(t).Alloc(0x1000, -1)
	require.ErrorIs(t, err, plugin.InvalidArgument)
	_, err = driver(t).Function(0x1000, 1, "nokernel", 0)
	require.EqualError(t, err, "loading kernel nokernel: CUDA error 500")
	require.Equal(t, cuda.Success, cuda.ResultOf(nil))
}

func TestLaunchKernels(t *testing.T) {
	d := driver(t)
	f, err := d.Function(0x1000, 1, "kernel", 64<<10)
	require.NoError(t, err)
	launches := make([]cuda.Launch, 3)
	for i := range launches {
		launches[i] = cuda.Launch{Function: f, Grid: [3]uint32{uint32(i + 1), 1, 1}, Block: [3]uint32{32, 1, 1}, Bytes: 8,
			Flags: cuda.LaunchDependent}
		binary.LittleEndian.PutUint64(launches[i].Params[:], uint64(i))
	}
	n, err := d.LaunchKernels(0x1000, 0, launches)
	require.NoError(t, err)
	require.Equal(t, 3, n)

	launches[1].Function = 0xBAD
	n, err = d.LaunchKernels(0x1000, 0, launches)
	require.ErrorContains(t, err, "cuLaunchKernelEx of launch 2 of 3: CUDA error 400")
	require.Equal(t, 1, n, "those before the failure were launched")
	launches[1].Function = f
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := d.LaunchKernels(0x1000, 0, launches); err != nil {
			t.Error(err)
		}
	}))
}

// record returns the work put into the fake's streams since the last call.
func record(t *testing.T, d cuda.Driver) string {
	raw := make([]byte, 4096)
	require.NoError(t, d.Read(0x1000, raw, 1))
	return string(bytes.TrimRight(raw, "\x00"))
}

func TestSubmitPutsWorkIntoStreamsInOrder(t *testing.T) {
	d := driver(t)
	record(t, d)
	f, err := d.Function(0x1000, 1, "kernel", 0)
	require.NoError(t, err)
	one := [3]uint32{1, 1, 1}
	b := &cuda.Batch{Stream: 0x10, Params: make([]byte, 32), Work: []cuda.Work{
		{Kind: cuda.WorkRecord, Stream: 0x10, Handle: 0xE1},
		{Kind: cuda.WorkWait, Stream: 0x11, Handle: 0xE1},
		{Kind: cuda.WorkLaunch, Stream: 0x10, Handle: uint64(f), Grid: [3]uint32{3, 1, 1}, Block: one,
			Flags: cuda.LaunchDependent, Params: 16, ParamBytes: 16},
		{Kind: cuda.WorkCopy, Stream: 0x11, To: 0x2000, From: 0x3000, Bytes: 5 << 30},
		{Kind: cuda.WorkLaunch, Stream: 0x10, Handle: 0xF01, Grid: [3]uint32{4, 1, 1}, Block: one,
			Flags: cuda.LaunchDependent},
	}}
	done, c, err := d.Submit(0x1000, b)
	require.NoError(t, err)
	require.Equal(t, 5, done)
	require.Zero(t, c)
	require.Equal(t, "record 0xe1 on 0x10;wait 0xe1 on 0x11;launch 3 on 0x10 in 0x1000 dependent;"+
		"copy 5368709120 3000 2000 on 0x11;launch 4 on 0x10 in 0x1000;", record(t, d))
	current, err := cuda.Current()
	require.NoError(t, err)
	require.Equal(t, cuda.Context(0xAA), current)
	_, _, err = d.Submit(0xAA, b)
	require.NoError(t, err)
	require.Contains(t, record(t, d), "in 0xaa", "the caller's context is the one")

	b.Work[3].Kind = 99
	done, _, err = d.Submit(0x1000, b)
	require.Equal(t, 3, done)
	require.ErrorContains(t, err, "unknown work, piece 4 of 5: CUDA error 1")
	b.Work[3] = cuda.Work{Kind: cuda.WorkLaunch, Handle: 0xBAD}
	done, _, err = d.Submit(0x1000, b)
	require.Equal(t, 3, done)
	require.ErrorContains(t, err, "cuLaunchKernelEx, piece 4 of 5: CUDA error 400")
	current, err = cuda.Current()
	require.NoError(t, err)
	require.Equal(t, cuda.Context(0xAA), current, "after a failure too")
	record(t, d)
}

// A driver that refuses an attribute of a launch gets the launch without it, and with
// the others that it takes.
func TestLaunchAttributesArriveAsFarAsTheDriverKnowsThem(t *testing.T) {
	d := driver(t)
	record(t, d)
	const all, none, noDomains = 0xF00, 0xF01, 0xF02 // what the fake's drivers know
	for _, test := range []struct {
		driver uint64
		flags  uint32
		want   string
	}{
		{all, 0, ""},
		{all, cuda.LaunchDependent, " dependent"},
		{all, cuda.LaunchRemote, " remote"},
		{all, cuda.LaunchDependent | cuda.LaunchRemote, " dependent remote"},
		{none, cuda.LaunchDependent, ""},
		{none, cuda.LaunchRemote, ""},
		{none, cuda.LaunchDependent | cuda.LaunchRemote, ""},
		{noDomains, cuda.LaunchDependent, " dependent"},
		{noDomains, cuda.LaunchRemote, ""},
		{noDomains, cuda.LaunchDependent | cuda.LaunchRemote, " dependent"},
	} {
		one := [3]uint32{1, 1, 1}
		done, _, err := d.Submit(0x1000, &cuda.Batch{Stream: 0x10, Params: make([]byte, 8), Work: []cuda.Work{{
			Kind: cuda.WorkLaunch, Stream: 0x10, Handle: test.driver, Flags: test.flags, Grid: one, Block: one,
			ParamBytes: 8}}})
		require.NoError(t, err)
		require.Equal(t, 1, done)
		require.Equal(t, "launch 1 on 0x10 in 0x1000"+test.want+";", record(t, d), "driver %x, flags %d", test.driver,
			test.flags)
	}
}

func TestSubmitDoesNothingInAnotherCaptureThanExpected(t *testing.T) {
	d := driver(t)
	record(t, d)
	work := []cuda.Work{{Kind: cuda.WorkRecord, Handle: 0xE1}}
	for stream, want := range map[cuda.Stream]struct {
		capture uint64
		c       cuda.Capture
		done    int
	}{
		0x20: {0, cuda.Capture{Status: cuda.CaptureActive, ID: 7, Graph: 0x77}, 0},
		0x21: {7, cuda.Capture{Status: cuda.CaptureActive, ID: 7, Graph: 0x77}, 1},
		0x10: {7, cuda.Capture{}, 0},
		0x30: {0, cuda.Capture{Status: cuda.CaptureInvalidated}, 0},
	} {
		done, c, err := d.Submit(0x1000, &cuda.Batch{Stream: stream, Capture: want.capture, Work: work})
		require.NoError(t, err)
		require.Equal(t, want.done, done)
		require.Equal(t, want.c, c)
		require.Equal(t, want.done > 0, record(t, d) != "")
	}
	_, _, err := d.Submit(0x1000, &cuda.Batch{Stream: 0x40, Work: work})
	require.EqualError(t, err, "cuStreamGetCaptureInfo: CUDA error 400")
	_, _, err = d.Submit(0xBAD, &cuda.Batch{Stream: 0x10, Work: work})
	require.EqualError(t, err, "making the context current: CUDA error 201")
}

func TestSubmitDoesNotAllocate(t *testing.T) {
	d := driver(t)
	one := [3]uint32{1, 1, 1}
	b := &cuda.Batch{Stream: 0x10, Work: []cuda.Work{{Kind: cuda.WorkCopy, Stream: 0x10, Bytes: 1},
		{Kind: cuda.WorkLaunch, Stream: 0x10, Handle: 0xF00, Grid: one, Block: one,
			Flags: cuda.LaunchDependent | cuda.LaunchRemote}}}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, _, err := d.Submit(0x1000, b); err != nil {
			t.Error(err)
		}
	}))
	record(t, d)
}

// Threads that only look must not disturb, nor be disturbed by, a capture in
// another thread.
func TestQueriesAreAllowedWhileAnotherThreadCaptures(t *testing.T) {
	done, err := driver(t).EventDone(0x1000, 1)
	require.NoError(t, err)
	require.True(t, done)
}

// A handle is given back in the call that retained it, whatever fails.
func TestRangeIsExportedChunkByChunk(t *testing.T) {
	d := driver(t)
	record(t, d)
	chunks, err := d.ExportRange(0x1000, 0x11FFF, 0x1002, 3)
	require.NoError(t, err)
	require.Equal(t, "export 17;release 17;export 18;release 18;export 19;release 19;", record(t, d))
	for i, c := range chunks {
		var s unix.Stat_t
		require.NoError(t, unix.Fstat(c.FD, &s))
		c.FD = 0
		require.Equal(t, cuda.Chunk{Address: 0x11000 + cuda.Ptr(i)<<12, Bytes: 0x1000, BufferID: 0x11 + uint64(i), Device: 1},
			c)
	}
	cuda.CloseChunks(chunks)
	for _, test := range []struct {
		p       cuda.Ptr
		bytes   int64
		calls   string
		failure string
	}{
		{0x1E000, 0x2001, "export 30;release 30;export 31;release 31;", "exporting the mapping at 0x20000"},
		{0x1C000, 0x1001, "export 28;release 28;release 29;", "exporting the mapping at 0x1d000"},
		{0x11000, 0x4000, "export 17;release 17;export 18;release 18;export 19;release 19;", "of more than 3 handles"},
		{^cuda.Ptr(0), 2, "", "reach past the end of memory"},
		{0x11000, 0, "", "ExportRange got 0 bytes"},
	} {
		before := descriptors(t)
		_, err = d.ExportRange(0x1000, test.p, test.bytes, 3)
		require.ErrorContains(t, err, test.failure)
		require.Equal(t, test.calls, record(t, d))
		require.Equal(t, before, descriptors(t))
	}
	_, err = d.ImportRange(0x1000, 0, []int{1}, []int64{-1})
	require.ErrorContains(t, err, "a chunk of -1 bytes")
}

func descriptors(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// What is mapped somewhere is known by its buffer id. Nothing is retained.
func TestMappingsAreComparedByBufferID(t *testing.T) {
	d := driver(t)
	record(t, d)
	at, ids := []cuda.Ptr{0x11004, 0x12000}, []uint64{0x11, 0x12}
	for _, test := range []struct {
		at   cuda.Ptr
		id   uint64
		same bool
	}{{0x12000, 0x12, true}, {0x12000, 5, false}, {0x20000, 0x12, false}} {
		at[1], ids[1] = test.at, test.id
		same, err := d.StillMapped(0x1000, at, ids)
		require.NoError(t, err)
		require.Equal(t, test.same, same)
	}
	require.Empty(t, record(t, d))
	require.Zero(t, testing.AllocsPerRun(10, func() { _, _ = d.StillMapped(0x1000, at, ids) }))
	_, err := d.StillMapped(0x1000, at, nil)
	require.ErrorIs(t, err, plugin.InvalidArgument)
	at[0] = 0x666
	same, err := d.StillMapped(0x1000, at, ids)
	require.ErrorContains(t, err, "cuPointerGetAttribute of 2 addresses from 0x666 on")
	require.False(t, same)
}

func TestGraphTokensAreHandedOutWhenTheGraphIsGone(t *testing.T) {
	d := driver(t)
	buffer := make([]uint64, 4)
	require.NoError(t, d.RetainOnGraph(1, 42))
	require.Empty(t, d.Released(buffer))
	require.NoError(t, d.DestroyGraph(1))
	require.Equal(t, []uint64{42}, d.Released(buffer))
	require.Empty(t, d.Released(buffer))

	require.Error(t, d.RetainOnGraph(0, 43))
	require.Equal(t, []uint64{43}, d.Released(buffer), "nothing is kept for a graph that did not take it")

	for token := range uint64(6) { // more than there is room for
		require.NoError(t, d.RetainOnGraph(1, token))
		require.NoError(t, d.DestroyGraph(1))
	}
	var all []uint64
	for range 2 {
		all = append(all, d.Released(buffer)...)
	}
	require.ElementsMatch(t, []uint64{0, 1, 2, 3, 4, 5}, all)
}

func TestToolkitLibrariesThatAreNotThere(t *testing.T) {
	_, err := cuda.LoadCompiler("/nonexistent/libnvrtc.so")
	require.ErrorContains(t, err, "no CUDA runtime compiler: /nonexistent/libnvrtc.so")
	_, err = cuda.LoadManagement("/nonexistent/libnvidia-ml.so.1")
	require.ErrorContains(t, err, "no NVML: /nonexistent/libnvidia-ml.so.1")
	_, err = cuda.LoadManagement("libc.so.6")
	require.ErrorContains(t, err, "libc.so.6 has no function nvmlInit_v2")
}

func BenchmarkLaunchKernels(b *testing.B) {
	d := driver(b)
	f, err := d.Function(0x1000, 1, "kernel", 0)
	require.NoError(b, err)
	launches := []cuda.Launch{{Function: f, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, Bytes: 200}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.LaunchKernels(0x1000, 0, launches); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSubmit(b *testing.B) {
	d := driver(b)
	f, err := d.Function(0x1000, 1, "kernel", 0)
	require.NoError(b, err)
	batch := &cuda.Batch{Stream: 0x10, Params: make([]byte, 136), Work: []cuda.Work{
		{Kind: cuda.WorkLaunch, Stream: 0x10, Handle: uint64(f), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1},
			ParamBytes: 136},
	}}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := d.Submit(0x1000, batch); err != nil {
			b.Fatal(err)
		}
	}
}
