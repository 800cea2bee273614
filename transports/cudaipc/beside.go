package cudaipc

import (
	"slices"

	"github.com/shunt-ccl/shunt/plugin"
)

// What plans do beside computation, as a stream of high priority or a budget says; see
// docs/decisions/0050-beside-products.md.

// besideBlocks is the number of blocks of an all_reduce of more than two ranks beside computation, in messages of
// more bytes than besideFrom. Alone it would take a tenth longer.
const (
	besideBlocks = 20
	besideFrom   = 32 * mib
)

// hasGate reports whether a gate before an algorithm's kernel pays beside computation; see kernels/barrier.cu. The
// kernel of an all_reduce would then wait for another end of a product.
func (a algorithm) hasGate() bool {
	return (a.collective == plugin.AllGather || a.collective == plugin.ReduceScatter) &&
		(a.name == "direct" || a.name == "staged")
}

// gate returns which gate that is.
func (a algorithm) gate() int64 {
	if a.collective == plugin.ReduceScatter && a.name == "staged" {
		return gateStaged
	}
	return gateDirect
}

// urgent is 1 where the stream has a high priority: what the call is to overtake runs beside it.
func (w writer) urgent() plugin.Reg { return w.Lt(w.Const(0), w.Slot(plugin.SlotPriority)) }

// runAs launches an algorithm's kernel, and a gate before it where ranks are to wait for each other with one block:
// beside computation, as a stream of high priority or a budget says, they come at unlike times.
func (w writer) runAs(a algorithm, bytes plugin.Reg, args []plugin.KernelArg) {
	if !a.hasGate() || w.met {
		w.runAlone(a, bytes, args)
		return
	}
	none := w.Const(0)
	gate := w.Lt(none, bytes) // peers do not see an empty call
	if !w.budget {
		gate = w.Mul(gate, w.urgent())
	}
	w.If(gate, func() {
		before := slices.Clone(args[:commonArgs])
		before[argRoot] = plugin.Value(w.Const(a.gate()), 4)
		w.Launch("barrier", "shunt_gate", w.Const(1), w.Const(32), before...)
		w.behind().runAlone(a, bytes, args)
	})
	w.If(w.Eq(gate, none), func() { w.runAlone(a, bytes, args) })
}

// behind returns a writer of kernels that begin when the one before them has ended.
func (w writer) behind() writer {
	w.plain = true
	return w
}

// wish tells how many blocks an all_reduce wishes for, in the arguments that it returns: fewer where wish is 1. They
// work if all ranks wish so; see kernels/width.cuh.
func (w writer) wish(bytes plugin.Reg, args []plugin.KernelArg) (wish plugin.Reg, told []plugin.KernelArg) {
	agrees := w.Lt(w.Const(besideFrom), bytes)
	wish = w.Mul(agrees, w.urgent())
	told = slices.Clone(args)
	told[argRoot] = plugin.Value(w.Add(agrees, w.Mul(wish, w.Const(besideBlocks))), 4)
	return wish, told
}
