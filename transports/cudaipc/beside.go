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

// gateFrom is the number of bytes from which on a kernel in LL128 has a gate. With one, shorter messages would take
// twice as long alone.
const gateFrom = 128 * kib

// gate returns the kernel that makes ranks meet before an algorithm's own, where that pays beside computation, and the
// bytes from which on it does; see kernels/barrier.cu. The kernel of an all_reduce would then wait for another end of
// a product; that of a channel waits for no peer in its first block.
func (a algorithm) gate() (kernel string, from int64) {
	switch a.collective {
	case plugin.AllGather, plugin.ReduceScatter, plugin.AllToAll:
	default:
		return "", 0
	}
	switch {
	case a.name == "direct" || a.name == "staged":
		return "shunt_gate_" + a.name, 1 // peers do not see an empty call
	case a.name == "ll128" && a.grid == units:
		return "shunt_gate_" + a.name, gateFrom
	}
	return "", 0
}

// urgent is 1 where the stream has a high priority: what the call is to overtake runs beside it.
func (w writer) urgent() plugin.Reg { return w.Lt(w.Const(0), w.Slot(plugin.SlotPriority)) }

// runAs launches an algorithm's kernel, and a gate before it where ranks are to wait for each other with one block:
// beside computation, as a stream of high priority or a budget says, they come at unlike times.
func (w writer) runAs(a algorithm, bytes plugin.Reg, args []plugin.KernelArg) {
	kernel, from := a.gate()
	if kernel == "" || w.met {
		w.runAlone(a, bytes, args)
		return
	}
	gate := w.Le(w.Const(from), bytes)
	if !w.budget {
		gate = w.Mul(gate, w.urgent())
	}
	w.If(gate, func() {
		w.Launch("barrier", kernel, w.Const(1), w.Const(32), args[:commonArgs]...)
		w.behind().runAlone(a, bytes, args)
	})
	w.If(w.Eq(gate, w.Const(0)), func() { w.runAlone(a, bytes, args) })
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
