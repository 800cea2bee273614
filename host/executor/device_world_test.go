package executor

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
)

// gpu is a driver in memory with one Device of a world, and words of memory
// that its kernels use.
type gpu struct {
	t testing.TB
	*cudatest.Driver
	device *Device
	ctx    cuda.Context // the test's own use
	words  cuda.Ptr     // 64 words, zero
}

func word(p uint64) *uint64 { return *(**uint64)(unsafe.Pointer(&p)) }

func param(g cudatest.Grid, i int) uint64 {
	return binary.LittleEndian.Uint64(g.Launch.Params[8*i:])
}

// Kernels of these tests. Arguments are 64 bits wide.
var deviceKernels = map[string]cudatest.Kernel{
	// add(word, n)
	"add": func(g cudatest.Grid) { atomic.AddUint64(word(param(g, 0)), param(g, 1)) },
	// copyword(to, from): without atomics, so that the race detector sees
	// what is not ordered.
	"copyword": func(g cudatest.Grid) { *word(param(g, 0)) = *word(param(g, 1)) },
	// increment(word): likewise
	"increment": func(g cudatest.Grid) { *word(param(g, 0))++ },
	// follow(word, n, faults): the nth to come takes the word from n to n+1;
	// without atomics, so out of order is a fault or a race.
	"follow": func(g cudatest.Grid) {
		if w := word(param(g, 0)); *w == param(g, 1) {
			*w++
		} else {
			atomic.AddUint64(word(param(g, 2)), 1)
		}
	},
	// await(word, n, abort): until the word has reached n
	"await": func(g cudatest.Grid) {
		for atomic.LoadUint64(word(param(g, 0))) < param(g, 1) {
			if a := param(g, 2); a != 0 && atomic.LoadUint32((*uint32)(unsafe.Pointer(word(a)))) != 0 {
				return
			}
			select {
			case <-g.Done:
				return
			default:
			}
		}
	},
	// arguments(to): its own argument block behind the first word, grid and
	// block, shared memory
	"arguments": func(g cudatest.Grid) {
		to := unsafe.Slice((*byte)(unsafe.Pointer(word(param(g, 0)))), 512)
		copy(to[64:], g.Launch.Params[:g.Launch.Bytes])
		for i := range 3 {
			binary.LittleEndian.PutUint32(to[4*i:], g.Launch.Grid[i])
			binary.LittleEndian.PutUint32(to[12+4*i:], g.Launch.Block[i])
		}
		binary.LittleEndian.PutUint32(to[24:], g.Launch.Shared)
		binary.LittleEndian.PutUint32(to[28:], g.Launch.Bytes)
		binary.LittleEndian.PutUint32(to[32:], g.Launch.Flags)
	},
}

var testImages = []plugin.Image{{Name: "image", Data: []byte("image")}}

func newGPU(t testing.TB, world int) *gpu {
	return newGPUOf(t, cudatest.Options{Devices: 2, Kernels: deviceKernels}, world)
}

func newGPUOf(t testing.TB, options cudatest.Options, world int) *gpu {
	g := &gpu{t: t, Driver: cudatest.New(options)}
	t.Cleanup(func() {
		require.Empty(t, g.Hazards())
		g.Driver.Close()
	})
	var err error
	g.ctx, err = g.Retain(0)
	require.NoError(t, err)
	m, err := g.AllocHost(g.ctx, 512)
	require.NoError(t, err)
	g.words = m.Device
	g.device = g.newDevice(g.Driver, world)
	return g
}

// newDevice makes a Device over a driver, whose region 0 of every rank are the
// words.
func (g *gpu) newDevice(driver cuda.Driver, world int) *Device {
	d, err := NewDevice(driver, 0, 0, world)
	require.NoError(g.t, err)
	g.t.Cleanup(func() { require.NoError(g.t, d.Close()) })
	require.NoError(g.t, d.AddImages(0, testImages))
	for rank := range world {
		require.NoError(g.t, d.SetRegion(0, 0, rank, g.words, 512))
	}
	return d
}

func (g *gpu) stream() cuda.Stream {
	s, err := g.NewStream(g.ctx, 0)
	require.NoError(g.t, err)
	return s
}

func (g *gpu) at(i int) *uint64 {
	return (*uint64)(unsafe.Pointer(&g.Bytes(g.words+cuda.Ptr(8*i), 8)[0]))
}

func (g *gpu) value(i int) uint64    { return atomic.LoadUint64(g.at(i)) }
func (g *gpu) store(i int, v uint64) { atomic.StoreUint64(g.at(i), v) }
func (g *gpu) synchronize(s ...cuda.Stream) {
	for _, s := range s {
		require.NoError(g.t, g.SynchronizeStream(g.ctx, s))
	}
}

// devicePlan builds a plan.
func devicePlan(t testing.TB, world int, build func(b *plugin.Builder)) *plugin.Plan {
	b := plugin.NewBuilder(plugin.Request{Collective: plugin.AllReduce, DType: plugin.Float32, World: world}, "test")
	build(b)
	p, err := b.Plan()
	require.NoError(t, err)
	return p
}

func (g *gpu) load(build func(b *plugin.Builder)) *DeviceProgram {
	p, err := g.device.Load(devicePlan(g.t, g.device.world, build), 0)
	require.NoError(g.t, err)
	return p
}

// place returns word i of the region of rank 0.
func place(b *plugin.Builder, i int) plugin.KernelArg {
	return plugin.Address(b.Region(b.Const(0), b.Const(0), b.Const(int64(8*i))))
}

func kernel(b *plugin.Builder, name string, args ...plugin.KernelArg) {
	b.Launch("image", name, b.Const(1), b.Const(1), args...)
}

// bump returns a plan that increments word i without atomics.
func (g *gpu) bump(i int) *DeviceProgram {
	p, err := g.device.Load(g.bumpPlan(i), 0)
	require.NoError(g.t, err)
	return p
}

func (g *gpu) bumpPlan(i int) *plugin.Plan {
	return devicePlan(g.t, g.device.world, func(b *plugin.Builder) {
		b.Track(func() {
			kernel(b, "increment",
				place(b, i))
		})
	})
}

// follow returns what runs a plan whose every run must come behind the one before it,
// counted in word i by argument Bytes, with faults counted in word 63.
func (g *gpu) follow(i int) func(s cuda.Stream, n int) {
	p := g.load(func(b *plugin.Builder) {
		b.Track(func() { kernel(b, "follow", place(b, i), plugin.Value(b.Slot(plugin.SlotBytes), 8), place(b, 63)) })
	})
	return func(s cuda.Stream, n int) {
		g.t.Helper()
		a := &Arguments{}
		a.Slots[plugin.SlotBytes] = int64(n)
		require.NoError(g.t, g.device.Run(p, a, s))
	}
}

// hold returns a plan that waits until word i is 1, and ends when aborted.
func (g *gpu) hold(i int) *DeviceProgram {
	return g.load(func(b *plugin.Builder) {
		b.Track(func() {
			kernel(b, "await", place(b, i), plugin.Value(b.Const(1), 8), plugin.Address(b.Abort()))
		})
	})
}

func (g *gpu) run(p *DeviceProgram, s cuda.Stream) {
	g.t.Helper()
	require.NoError(g.t, g.device.Run(p, &Arguments{}, s))
}

func (g *gpu) capture(s cuda.Stream, body func()) cuda.Graph {
	g.t.Helper()
	require.NoError(g.t, g.BeginCapture(g.ctx, s))
	body()
	graph, err := g.EndCapture(g.ctx, s)
	require.NoError(g.t, err)
	return graph
}

func (g *gpu) instantiate(graph cuda.Graph) cuda.GraphExec {
	x, err := g.Instantiate(g.ctx, graph)
	require.NoError(g.t, err)
	return x
}

// SetAll fills memory and waits.
func (g *gpu) SetAll(p cuda.Ptr, value byte, n int64, s cuda.Stream) error {
	if err := g.Set(g.ctx, p, value, n, s); err != nil {
		return err
	}
	return g.SynchronizeStream(g.ctx, s)
}
