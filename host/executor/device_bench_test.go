package executor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// blind is a driver that does not do what is submitted, so that what Run itself
// takes is seen.
type blind struct {
	cuda.Driver
	capture cuda.Capture
}

func (b *blind) Submit(_ cuda.Context, batch *cuda.Batch) (int, cuda.Capture, error) {
	if b.capture.ID != batch.Capture {
		return 0, b.capture, nil
	}
	return len(batch.Work), b.capture, nil
}

// allReduce returns a plan like those of small collectives: a computed grid and the
// whole argument block.
func allReduce(t testing.TB, world int) *plugin.Plan {
	return devicePlan(t, world, func(b *plugin.Builder) {
		b.Track(func() {
			zero, bytes := b.Const(0), b.Slot(plugin.SlotBytes)
			n := b.CeilDiv(bytes, b.Const(8))
			most := b.Select(b.Le(n, b.Const(256*64)), b.Const(256), b.Const(512))
			threads := b.Mul(b.CeilDiv(b.Max(b.Min(n, most), b.Const(1)), b.Const(32)), b.Const(32))
			blocks := b.Max(b.Min(b.CeilDiv(n, threads), b.Const(64)), b.Const(1))
			args := []plugin.KernelArg{
				plugin.Address(b.Send(zero)), plugin.Address(b.Recv(zero)), plugin.Value(bytes, 8),
				plugin.Value(b.Slot(plugin.SlotScalar), 8),
				plugin.Address(b.Abort()), plugin.Value(zero, 8), plugin.Value(zero, 4), plugin.Value(b.Const(int64(world)), 4),
				plugin.Value(zero, 4), plugin.Value(b.Slot(plugin.SlotRoot), 4),
			}
			for rank := range world {
				args = append(args, plugin.Address(b.Region(zero, b.Const(int64(rank)), zero)))
			}
			b.LaunchDependent("image", "add", blocks, threads, args...)
		})
	})
}

func TestDeviceRunDoesNotAllocate(t *testing.T) {
	g := newGPU(t, 4)
	b := &blind{Driver: g.Driver}
	d := g.newDevice(b, 4)
	p, err := d.Load(allReduce(t, 4), 0)
	require.NoError(t, err)
	a := &Arguments{Send: pointer(g.words), Recv: pointer(g.words), Arrays: make([]int64, 16)}
	a.Slots[plugin.SlotBytes], a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = 8, 8, 8
	batch := []DeviceLaunch{{p, *a}, {p, *a}, {p, *a}}
	s, other := g.stream(), g.stream()
	check := func(name string, run func() error) {
		t.Helper()
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if err := run(); err != nil {
				t.Error(err)
			}
		}), name)
	}
	check("one stream", func() error { return d.Run(p, a, s) })
	check("two streams", func() error {
		if err := d.Run(p, a, other); err != nil {
			return err
		}
		return d.Run(p, a, s)
	})
	check("a batch", func() error { return d.RunBatch(batch, s) })
	graph := g.capture(other, func() {
		b.capture, err = g.CaptureInfo(g.ctx, other)
		require.NoError(t, err)
		check("a capture", func() error { return d.Run(p, a, other) })
	})
	b.capture = cuda.Capture{}
	require.NoError(t, g.DestroyGraph(graph))
}

// BenchmarkDeviceRun8B measures the time of a call besides the driver.
func BenchmarkDeviceRun8B(b *testing.B) {
	g := newGPU(b, 4)
	d := g.newDevice(&blind{Driver: g.Driver}, 4)
	p, err := d.Load(allReduce(b, 4), 0)
	require.NoError(b, err)
	a := &Arguments{Send: pointer(g.words), Recv: pointer(g.words)}
	a.Slots[plugin.SlotBytes], a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = 8, 8, 8
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Run(p, a, 0); err != nil {
			b.Fatal(err)
		}
	}
}
