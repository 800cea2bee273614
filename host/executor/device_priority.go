package executor

import (
	"slices"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// unasked is the priority of a stream of which no plan has wanted to know it.
const unasked = -1

// asks reports whether a plan for a GPU reads any of some slots.
func asks(p *plugin.Plan, slots ...plugin.Slot) bool {
	is := func(registers ...uint16) bool {
		return slices.ContainsFunc(registers, func(r uint16) bool { return slices.Contains(slots, plugin.Slot(r)) })
	}
	return slices.ContainsFunc(p.Steps, func(s plugin.Step) bool {
		switch s.Kind {
		case plugin.StepSet:
			return is(s.A, s.B, s.C)
		case plugin.StepIf:
			return is(s.A)
		case plugin.StepLoop, plugin.StepCopy:
			return is(s.N)
		}
		return s.Kind == plugin.StepNative || s.Kind == plugin.StepRemote // which get all registers
	}) || slices.ContainsFunc(p.Refs, func(r plugin.Ref) bool {
		return is(r.Region, r.Rank, r.Offset)
	}) || slices.ContainsFunc(p.Kernels, func(k plugin.Kernel) bool {
		return is(k.Grid[:]...) || is(k.Block[:]...) || is(k.Shared)
	}) || slices.ContainsFunc(p.Args, func(a plugin.Arg) bool { return is(a.Value) })
}

// prioritize fills SlotPriority of those launches whose plans ask; follows says that the stream is that of the
// operation before. The driver is asked only where the stream has changed. d.mu is held.
func (d *Device) prioritize(ls []DeviceLaunch, stream cuda.Stream, follows bool) {
	d.priority = unasked
	if follows {
		d.priority = d.order.priority
	}
	for i := range ls {
		if !ls[i].Program.asksPriority {
			continue
		}
		if d.priority == unasked {
			// What is wrong with a stream the launch tells.
			p, _ := d.driver.StreamPriority(d.ctx, stream)
			d.priority = int64(max(0, -p))
		}
		ls[i].Arguments.Slots[plugin.SlotPriority] = d.priority
	}
}
