package algorithm

import "github.com/shunt-ccl/shunt/plugin"

// writer writes one plan over a scratch region.
type writer struct {
	*plugin.Builder
	layout
	me, size int
	element  int64
	scratch  plugin.Reg // number of the scratch region
	pairwise bool       // only the two ends of a message say how long it is
}

// rank is a rank that is known when the plan is written, or the one in the
// root slot.
type rank struct {
	known int
	reg   plugin.Reg
	slot  bool
}

func (w *writer) peer(r int) rank { return rank{known: r, reg: w.Const(int64(r))} }

func (w *writer) root() rank { return rank{reg: w.Slot(plugin.SlotRoot), slot: true} }

// isRoot returns 1 on the root.
func (w *writer) isRoot() plugin.Reg {
	return w.Eq(w.Slot(plugin.SlotRoot), w.Const(int64(w.me)))
}

// entry returns base + r*stride.
func (w *writer) entry(base int64, r rank, stride int64) plugin.Reg {
	if !r.slot {
		return w.Const(base + int64(r.known)*stride)
	}
	return w.Add(w.Const(base), w.Mul(r.reg, w.Const(stride)))
}

// own returns a place in this rank's scratch.
func (w *writer) own(offset plugin.Reg) plugin.RefID {
	return w.Region(w.scratch, w.Const(int64(w.me)), offset)
}

// of returns a place in r's scratch; plans only write there.
func (w *writer) of(r rank, offset plugin.Reg) plugin.RefID {
	return w.Region(w.scratch, r.reg, offset)
}

// peers returns all ranks but this one, starting behind it, so that not all ranks
// writes to the same rank at the same time.
func (w *writer) peers() []rank {
	peers := make([]rank, 0, w.size-1)
	for i := 1; i < w.size; i++ {
		peers = append(peers, w.peer((w.me+i)%w.size))
	}
	return peers
}

// rounds returns the number of pieces of a slot's capacity in a message: at least one,
// so that a message without bytes is signalled too.
func (w *writer) rounds(bytes plugin.Reg) plugin.Reg {
	return w.Max(w.CeilDiv(bytes, w.Const(w.capacity)), w.Const(1))
}

// piece returns the number of bytes that lie in the limit bytes from offset; 0 if none.
func (w *writer) piece(bytes, offset, limit plugin.Reg) plugin.Reg {
	return w.Max(w.Min(w.Sub(bytes, offset), limit), w.Const(0))
}

// elements turns bytes into elements.
func (w *writer) elements(bytes plugin.Reg) plugin.Reg {
	if w.element == 1 {
		return bytes
	}
	return w.Div(bytes, w.Const(w.element))
}

func (w *writer) otherwise(cond plugin.Reg, body func()) {
	w.If(w.Eq(cond, w.Const(0)), body)
}

// from and to name places behind a displacement in the caller's memory.
func (w *writer) from(displ plugin.Reg) func(plugin.Reg) plugin.RefID {
	return func(offset plugin.Reg) plugin.RefID { return w.Send(w.Add(displ, offset)) }
}

func (w *writer) to(displ plugin.Reg) func(plugin.Reg) plugin.RefID {
	return func(offset plugin.Reg) plugin.RefID { return w.Recv(w.Add(displ, offset)) }
}
