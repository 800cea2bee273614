package executor

import (
	"slices"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// unasked is the priority of a stream of which no plan has wanted to know it.
const unasked = -1

// asksPriority reports whether a plan reads SlotPriority.
func asksPriority(p *plugin.Plan) bool {
	slot := uint16(plugin.SlotPriority)
	for i := range p.Steps {
		s := &p.Steps[i]
		switch s.Kind {
		case plugin.StepSet:
			if slot == s.A || slot == s.B || slot == s.C {
				return true
			}
		case plugin.StepIf:
			if slot == s.A {
				return true
			}
		case plugin.StepNative, plugin.StepRemote: // get all registers
			return true
		}
	}
	return slices.ContainsFunc(p.Args, func(a plugin.Arg) bool { return a.Value == slot })
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
