package executor_test

import (
	"encoding/binary"
	"math"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc"
)

// single is a world of one on a GPU: cudaipc's all_reduce of 8 bytes, whose
// kernel has no peers, so that its launch takes all the time.
type single struct {
	driver  cuda.Driver
	ctx     cuda.Context
	device  *executor.Device
	program *executor.DeviceProgram
	stream  cuda.Stream
	a       executor.Arguments
}

func newSingle(t testing.TB, driver cuda.Driver) *single {
	s := &single{driver: driver}
	endpoint, err := cudaipc.Transport{Driver: driver}.Open(t.Context(),
		plugin.OpenConfig{World: 1, Memory: plugin.MemoryKindCuda})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, endpoint.Close()) })
	s.device, err = executor.NewDevice(driver, 0, 0, 1)
	require.NoError(t, err)
	s.ctx = s.device.Context()
	for _, r := range endpoint.Regions() {
		if r.Role == plugin.RegionRoleDeferred { // short messages do without
			continue
		}
		m, err := driver.ImportMemory(s.ctx, 0, r.Handle.FD, r.Handle.Bytes)
		require.NoError(t, err)
		require.NoError(t, s.device.SetRegion(0, r.ID, 0, m.Address, m.Bytes))
		t.Cleanup(func() { require.NoError(t, driver.Unmap(s.ctx, m)) })
	}
	require.NoError(t, s.device.AddImages(0, endpoint.Images()))
	support := cudaipc.Transport{}.Supports(plugin.Request{Collective: plugin.AllReduce, World: 1, Hosts: 1,
		Memory: plugin.MemoryKindCuda})
	require.NotEmpty(t, support.Algorithms, support.Reason)
	plan, err := endpoint.Prepare(t.Context(), plugin.Request{
		Collective: plugin.AllReduce, DType: plugin.Float32, Op: plugin.OpPremulSum, World: 1, Hosts: 1,
		Memory: plugin.MemoryKindCuda,
	}, support.Algorithms[0].Name)
	require.NoError(t, err)
	s.program, err = s.device.Load(plan, 0)
	require.NoError(t, err)
	p, err := driver.Alloc(s.ctx, 64)
	require.NoError(t, err)
	require.NoError(t, driver.Write(s.ctx, p, binary.LittleEndian.AppendUint32(make([]byte, 4), math.Float32bits(3))))
	s.stream, err = driver.NewStream(s.ctx, 0)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, s.device.Close())
		require.NoError(t, driver.DestroyStream(s.ctx, s.stream))
		require.NoError(t, driver.Free(s.ctx, p))
	})
	at := func(p cuda.Ptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }
	s.a.Send, s.a.Recv = at(p), at(p+32)
	s.a.Slots[plugin.SlotCount], s.a.Slots[plugin.SlotBytes], s.a.Slots[plugin.SlotSendBytes],
		s.a.Slots[plugin.SlotRecvBytes] = 2, 8, 8, 8
	s.a.Slots[plugin.SlotScalar] = int64(math.Float64bits(0.5))
	return s
}

func (s *single) check(t testing.TB) {
	got := make([]byte, 8)
	require.NoError(t, s.driver.SynchronizeStream(s.ctx, s.stream))
	require.NoError(t, s.driver.Read(s.ctx, got, cuda.Ptr(uintptr(s.a.Recv))))
	require.InDelta(t, float32(1.5), math.Float32frombits(binary.LittleEndian.Uint32(got[4:])), 0)
}

// gpuDriver returns the machine's driver, or skips the test.
func gpuDriver(t testing.TB) cuda.Driver {
	driver, err := cuda.Open()
	if err != nil {
		t.Skipf("no CUDA driver: %v", err)
	}
	if devices, err := driver.Devices(); err != nil || len(devices) == 0 {
		t.Skipf("no CUDA device: %v", err)
	}
	return driver
}

func TestDeviceOnAGPU(t *testing.T) {
	for name, driver := range map[string]func(t testing.TB) cuda.Driver{
		"GPU": gpuDriver,
		"in memory": func(t testing.TB) cuda.Driver {
			d := cudatest.New(cudatest.Options{Kernels: map[string]cudatest.Kernel{
				"shunt_all_reduce_one_shot_ll_float32": func(g cudatest.Grid) {
					param := func(i int) uint64 { return binary.LittleEndian.Uint64(g.Launch.Params[8*i:]) }
					send, recv := param(0), param(1)
					for i := range int(param(2)) / 4 {
						from, to := *(**[2]float32)(unsafe.Pointer(&send)), *(**[2]float32)(unsafe.Pointer(&recv))
						to[i] = from[i] * float32(math.Float64frombits(param(3)))
					}
				}}})
			t.Cleanup(d.Close)
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSingle(t, driver(t))
			require.NoError(t, s.device.Run(s.program, &s.a, s.stream))
			s.check(t)
			runtime.LockOSThread() // which a capture belongs to
			defer runtime.UnlockOSThread()
			require.NoError(t, s.driver.BeginCapture(s.ctx, s.stream))
			for range 10 {
				require.NoError(t, s.device.Run(s.program, &s.a, s.stream))
			}
			graph, err := s.driver.EndCapture(s.ctx, s.stream)
			require.NoError(t, err)
			x, err := s.driver.Instantiate(s.ctx, graph)
			require.NoError(t, err)
			require.NoError(t, s.driver.LaunchGraph(s.ctx, x, s.stream))
			s.check(t)
			require.NoError(t, s.driver.DestroyGraphExec(x))
			require.NoError(t, s.driver.DestroyGraph(graph))
		})
	}
}

// BenchmarkDeviceRunOnAGPU measures the host's time for an all_reduce of 8 bytes, the
// driver's launch included. Every 64 operations the GPU is waited for, outside the
// measured time, so that the stream never fills.
func BenchmarkDeviceRunOnAGPU(b *testing.B) {
	s := newSingle(b, gpuDriver(b))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%64 == 63 {
			b.StopTimer()
			require.NoError(b, s.driver.SynchronizeStream(s.ctx, s.stream))
			b.StartTimer()
		}
		if err := s.device.Run(s.program, &s.a, s.stream); err != nil {
			b.Fatal(err)
		}
	}
	s.check(b)
}
