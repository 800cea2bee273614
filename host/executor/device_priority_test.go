package executor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// asked counts the questions after streams' priorities.
type asked struct {
	cuda.Driver
	times int
}

func (a *asked) StreamPriority(ctx cuda.Context, s cuda.Stream) (int, error) {
	a.times++
	return a.Driver.StreamPriority(ctx, s)
}

// A plan that asks for the stream's priority gets that of the stream it runs in, also where the handle was another
// stream's before, and in captures; and the driver is asked only when the stream has changed.
func TestPlansGetTheStreamsPriority(t *testing.T) {
	g := newGPU(t, 1)
	driver := &asked{Driver: g.Driver}
	d := g.newDevice(driver, 1)
	load := func(slot plugin.Slot) *DeviceProgram {
		p, err := d.Load(devicePlan(t, 1, func(b *plugin.Builder) {
			b.Track(func() { kernel(b, "add", place(b, 1), plugin.Value(b.Add(b.Slot(slot), b.Const(1)), 8)) })
		}), 0)
		require.NoError(t, err)
		return p
	}
	asks, does := load(plugin.SlotPriority), load(plugin.SlotBytes)
	stream := func(priority int) cuda.Stream {
		s, err := g.NewStream(g.ctx, priority)
		require.NoError(t, err)
		return s
	}
	run := func(p *DeviceProgram, s cuda.Stream, want, times int) {
		t.Helper()
		g.store(1, 0)
		driver.times = 0
		require.NoError(t, d.Run(p, &Arguments{}, s))
		g.synchronize(s)
		require.EqualValues(t, want+1, g.value(1))
		require.Equal(t, times, driver.times)
	}
	normal, high, low := stream(0), stream(-3), stream(2)
	run(asks, high, 3, 1)
	run(asks, high, 3, 0)
	run(does, high, 0, 0)
	run(asks, high, 3, 0)
	run(asks, normal, 0, 1)
	run(asks, low, 0, 1)
	run(does, high, 0, 0)
	run(asks, high, 3, 1)
	run(asks, 0, 0, 1)

	require.NoError(t, g.DestroyStream(g.ctx, high))
	again := stream(-1)
	require.Equal(t, high, again, "a handle comes back")
	run(asks, again, 1, 1)
	require.NoError(t, g.DestroyStream(g.ctx, again))
	again = stream(-2)
	g.store(1, 0)
	require.NoError(t, d.Run(asks, &Arguments{}, again))
	g.synchronize(again)
	require.EqualValues(t, 3, g.value(1), "the stream of the same handle before had another")

	graph := g.capture(again, func() { require.NoError(t, d.Run(asks, &Arguments{}, again)) })
	defer func() { require.NoError(t, g.DestroyGraph(graph)) }()
	x := g.instantiate(graph)
	g.store(1, 0)
	require.NoError(t, g.LaunchGraph(g.ctx, x, normal))
	g.synchronize(normal)
	require.EqualValues(t, 3, g.value(1), "what a graph does is settled when it is captured")
	require.NoError(t, g.DestroyGraphExec(x))
	run(asks, again, 2, 0)

	// What batches hold before the one that asks changes nothing.
	g.store(1, 0)
	require.NoError(t, d.RunBatch([]DeviceLaunch{{Program: does}, {Program: asks}, {Program: asks}}, normal))
	g.synchronize(normal)
	require.EqualValues(t, 1+1+1, g.value(1))
}

// Wherever a plan may have a register it gets the priority.
func TestPlansReadThePriorityAnywhere(t *testing.T) {
	g := newGPU(t, 1)
	s, err := g.NewStream(g.ctx, -2)
	require.NoError(t, err)
	for name, track := range map[string]func(b *plugin.Builder, priority plugin.Reg){
		"argument": func(b *plugin.Builder, priority plugin.Reg) { kernel(b, "add", place(b, 1), plugin.Value(priority, 8)) },
		"sum": func(b *plugin.Builder, priority plugin.Reg) {
			kernel(b, "add", place(b, 1), plugin.Value(b.Add(b.Const(0), priority), 8))
		},
		"condition": func(b *plugin.Builder, priority plugin.Reg) {
			b.If(priority, func() { kernel(b, "add", place(b, 1), plugin.Value(b.Const(2), 8)) })
		},
		"loop": func(b *plugin.Builder, priority plugin.Reg) {
			b.Loop(priority, func(plugin.Reg) { kernel(b, "increment", place(b, 1)) })
		},
		"grid": func(b *plugin.Builder, priority plugin.Reg) { // of 0 blocks is refused
			b.Launch("image", "add", priority, b.Const(1), place(b, 1), plugin.Value(b.Const(2), 8))
		},
		"offset": func(b *plugin.Builder, priority plugin.Reg) {
			zero := b.Const(0)
			at := b.Region(zero, zero, priority) // 2 bytes into the words before the one that counts
			b.Copy(b.Region(zero, zero, b.Const(8)), at, b.Const(8))
		},
		"length": func(b *plugin.Builder, priority plugin.Reg) {
			zero := b.Const(0)
			b.Copy(b.Region(zero, zero, b.Const(8)), b.Region(zero, zero, b.Const(2)), priority)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g.store(0, 2<<16)
			g.store(1, 0)
			p, err := g.device.Load(devicePlan(t, 1, func(b *plugin.Builder) {
				b.Track(func() { track(b, b.Slot(plugin.SlotPriority)) })
			}), 0)
			require.NoError(t, err)
			defer p.Free()
			require.NoError(t, g.device.Run(p, &Arguments{}, s))
			g.synchronize(s)
			require.EqualValues(t, 2, g.value(1)&0xFFFF)
		})
	}
}
