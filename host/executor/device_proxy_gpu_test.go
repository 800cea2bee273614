package executor_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/executor/commandtest"
	"github.com/shunt-ccl/shunt/host/executor/internal/nativetest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/ring"
)

// engineOnGPU is an engine of the test on the machine's GPU, by a ring or by native code.
type engineOnGPU struct {
	driver cuda.Driver
	device *executor.Device
	stream [2]cuda.Stream
	ring   *ring.Ring

	mu  sync.Mutex
	ran []int64
}

// anyDriver returns the machine's driver, or one in memory, which shows that the test runs and no times.
func anyDriver(t testing.TB) cuda.Driver {
	if driver, err := cuda.Open(); err == nil {
		if devices, err := driver.Devices(); err == nil && len(devices) > 0 {
			return driver
		}
	}
	d := cudatest.New(cudatest.Options{Kernels: commandtest.Kernels()})
	t.Cleanup(d.Close)
	return d
}

func newEngineOnGPU(t testing.TB) *engineOnGPU {
	e := &engineOnGPU{driver: anyDriver(t)}
	var err error
	e.device, err = executor.NewDevice(e.driver, 0, 0, 1)
	require.NoError(t, err)
	e.ring, err = ring.New(0, 1, 4096)
	require.NoError(t, err)
	e.ring.Serve(func(_ context.Context, c *ring.Command) error {
		if c.Operation == 1 {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.ran = append(e.ran, c.Args[0])
		}
		return nil
	})
	ctx := e.device.Context()
	bytes := e.ring.Region().Bytes
	at, err := e.driver.RegisterHost(ctx, e.ring.Memory(), bytes)
	require.NoError(t, err)
	require.NoError(t, e.device.SetLocal(0, 0, at, e.ring.Memory(), bytes))
	for i, priority := range []int{-1, 0} { // a program's communication goes before what it computes
		e.stream[i], err = e.driver.NewStream(ctx, priority)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		for _, s := range e.stream {
			require.NoError(t, e.driver.DestroyStream(ctx, s))
		}
		require.NoError(t, e.driver.UnregisterHost(ctx, e.ring.Memory()))
		require.NoError(t, e.device.Close())
		require.NoError(t, e.ring.Close())
	})
	return e
}

// load loads a plan of one engine step.
func (e *engineOnGPU) load(t testing.TB, step func(b *plugin.Builder)) *executor.DeviceProgram {
	b := plugin.NewBuilder(plugin.Request{Collective: plugin.AllReduce, DType: plugin.Float32, World: 1}, "test")
	b.Track(func() { step(b) })
	plan, err := b.Plan()
	require.NoError(t, err)
	p, err := e.device.Load(plan, 0)
	require.NoError(t, err)
	return p
}

func (e *engineOnGPU) graph(t testing.TB, s cuda.Stream, body func()) cuda.GraphExec {
	ctx := e.device.Context()
	runtime.LockOSThread() // which a capture belongs to
	defer runtime.UnlockOSThread()
	require.NoError(t, e.driver.BeginCapture(ctx, s))
	body()
	g, err := e.driver.EndCapture(ctx, s)
	require.NoError(t, err)
	x, err := e.driver.Instantiate(ctx, g)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.driver.DestroyGraphExec(x))
		require.NoError(t, e.driver.DestroyGraph(g))
	})
	return x
}

// Rule 6 on a GPU: replays of two graphs and eager calls, on two streams, thousands of them in flight.
func TestCommandsInTheOrderOfStreamsOnAGPU(t *testing.T) {
	e := newEngineOnGPU(t)
	ctx := e.device.Context()
	p := e.load(t, func(b *plugin.Builder) { e.ring.Post(b, 1, b.Slot(plugin.SlotBytes)) })
	note := func(s cuda.Stream, n int64) {
		a := &executor.Arguments{}
		a.Slots[plugin.SlotBytes] = n
		require.NoError(t, e.device.Run(p, a, s))
	}
	var execs [2]cuda.GraphExec
	for i := range execs {
		execs[i] = e.graph(t, e.stream[i], func() {
			for k := range 3 {
				note(e.stream[i], int64(100_000*(i+1)+k))
			}
		})
	}
	event, err := e.driver.NewEvent(ctx, false)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.driver.DestroyEvent(ctx, event)) }()
	var want []int64
	for round := range 1000 {
		i := round % 2
		require.NoError(t, e.driver.Record(ctx, event, e.stream[1-i]))
		require.NoError(t, e.driver.WaitEvent(ctx, e.stream[i], event))
		require.NoError(t, e.driver.LaunchGraph(ctx, execs[i], e.stream[i]))
		note(e.stream[i], int64(round))
		base := int64(100_000 * (i + 1))
		want = append(want, base, base+1, base+2, int64(round))
	}
	for _, s := range e.stream {
		require.NoError(t, e.driver.SynchronizeStream(ctx, s))
	}
	kind, _, _ := e.device.Fault()
	require.Equal(t, plugin.FaultNone, kind)
	e.mu.Lock() // what orders the two goes through memory that the race detector does not watch
	defer e.mu.Unlock()
	require.Equal(t, want, e.ran)
}

// An empty command on the stream, in a graph of a hundred: by native code, which ends at its first poll, and by a ring
// that goroutines serve; alone, and while another stream copies memory of the GPU.
func BenchmarkEmptyCommandOnAGPU(b *testing.B) {
	native, _ := nativetest.NewRequests(1, 0, plugin.OK, -1, "")
	for name, step := range map[string]func(e *engineOnGPU, p *plugin.Builder){
		"native": func(_ *engineOnGPU, p *plugin.Builder) { p.Native(native) },
		"ring":   func(e *engineOnGPU, p *plugin.Builder) { e.ring.Post(p, 0) },
		"none":   nil, // a copy of 8 bytes in its place: what anything in a stream takes
	} {
		for _, busy := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/busy=%v", name, busy), func(b *testing.B) {
				e := newEngineOnGPU(b)
				run := e.smallCopy(b)
				if step != nil {
					p := e.load(b, func(p *plugin.Builder) { step(e, p) })
					run = func() error { return e.device.Run(p, &executor.Arguments{}, e.stream[0]) }
				}
				const each = 100
				x := e.graph(b, e.stream[0], func() {
					for range each {
						require.NoError(b, run())
					}
				})
				load := func() {}
				if busy {
					load = e.copying(b)
				}
				e.time(b, each, x, func() {
					load()
					require.NoError(b, run()) // wakes the proxy, which a replay cannot
					require.NoError(b, e.driver.SynchronizeStream(e.device.Context(), e.stream[0]))
				})
			})
		}
	}
}

// smallCopy returns a function that puts a copy within the GPU's memory into the first stream.
func (e *engineOnGPU) smallCopy(b *testing.B) (run func() error) {
	ctx := e.device.Context()
	memory, err := e.driver.Alloc(ctx, 16)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, e.driver.Free(ctx, memory)) })
	return func() error { return e.driver.Copy(ctx, memory, memory+8, 8, e.stream[0]) }
}

// copying returns a function that keeps the second stream copying memory of the GPU for some 30 ms.
func (e *engineOnGPU) copying(b *testing.B) (begin func()) {
	bytes, copies := int64(64<<20), 500
	if _, inMemory := e.driver.(*cudatest.Driver); inMemory {
		bytes, copies = 64<<10, 5
	}
	ctx := e.device.Context()
	memory, err := e.driver.Alloc(ctx, 2*bytes)
	require.NoError(b, err)
	x := e.graph(b, e.stream[1], func() {
		for range copies {
			require.NoError(b, e.driver.Copy(ctx, memory, memory+cuda.Ptr(bytes), bytes, e.stream[1]))
		}
	})
	b.Cleanup(func() {
		require.NoError(b, errors.Join(e.driver.SynchronizeStream(ctx, e.stream[1]), e.driver.Free(ctx, memory)))
	})
	return func() {
		require.NoError(b, e.driver.SynchronizeStream(ctx, e.stream[1]))
		require.NoError(b, e.driver.LaunchGraph(ctx, x, e.stream[1]))
	}
}

// What posting alone takes: the kernel finds its command done already. That is the launch, the post, and one look at
// host memory. Beside it a kernel that finds the ring lost and ends at once: the launch and one look at device memory.
func BenchmarkPostOnAGPU(b *testing.B) {
	for _, lost := range []uint64{0, 1} {
		name := map[uint64]string{0: "post", 1: "launch"}[lost]
		b.Run(name, func(b *testing.B) {
			e := newEngineOnGPU(b)
			ctx := e.device.Context()
			const slots, slotBytes, doneAt, argBytes = 256, 448, 384, 216 // as command.h has them
			host, err := e.driver.AllocHost(ctx, slots*slotBytes+256)
			require.NoError(b, err)
			counters, err := e.driver.Alloc(ctx, 8*2)
			require.NoError(b, err)
			image, err := e.driver.LoadModule(ctx, executor.CommandImage())
			require.NoError(b, err)
			kernel, err := e.driver.Function(ctx, image, executor.CommandKernel, 0)
			require.NoError(b, err)
			launch := cuda.Launch{Function: kernel, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Bytes: argBytes}
			for i, w := range []uint64{uint64(host.Device), uint64(counters), uint64(host.Device) + slots*slotBytes} {
				binary.NativeEndian.PutUint64(launch.Params[8*i:], w)
			}
			for i := range slots {
				word := unsafe.Add(*(*unsafe.Pointer)(unsafe.Pointer(&host.Address)), slotBytes*i+doneAt)
				*(*uint64)(word) = uint64(i + 1)
			}
			x := e.graph(b, e.stream[0], func() {
				all := make([]cuda.Launch, slots)
				for i := range all {
					all[i] = launch
				}
				_, err := e.driver.LaunchKernels(ctx, e.stream[0], all)
				require.NoError(b, err)
			})
			start := make([]byte, 8*2)
			binary.NativeEndian.PutUint64(start[8:], lost)
			e.time(b, slots, x, func() { require.NoError(b, e.driver.Write(ctx, counters, start)) })
			require.NoError(b, e.driver.Free(ctx, counters))
			require.NoError(b, e.driver.FreeHost(ctx, host))
		})
	}
}

// time reports what each of the operations of a graph takes on the first stream.
func (e *engineOnGPU) time(b *testing.B, each int, x cuda.GraphExec, before func()) {
	ctx := e.device.Context()
	var events [2]cuda.Event
	for i := range events {
		var err error
		events[i], err = e.driver.NewEvent(ctx, true)
		require.NoError(b, err)
		defer func() { require.NoError(b, e.driver.DestroyEvent(ctx, events[i])) }()
	}
	var times []float64
	for i := range b.N + 3 {
		require.NoError(b, e.driver.SynchronizeStream(ctx, e.stream[0]))
		before()
		require.NoError(b, e.driver.Record(ctx, events[0], e.stream[0]))
		require.NoError(b, e.driver.LaunchGraph(ctx, x, e.stream[0]))
		require.NoError(b, e.driver.Record(ctx, events[1], e.stream[0]))
		require.NoError(b, e.driver.SynchronizeStream(ctx, e.stream[0]))
		took, err := e.driver.Elapsed(ctx, events[0], events[1])
		require.NoError(b, err)
		if i >= 3 { // the others warm up
			times = append(times, took/float64(each))
		}
	}
	slices.Sort(times)
	b.ReportMetric(times[len(times)/2], "µs/command")
	b.ReportMetric(times[0], "µs/command(best)")
}
