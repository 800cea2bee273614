package shm

import "github.com/shunt-ccl/shunt/plugin"

// writer writes one plan. It is a plugin.Builder that knows the layout and
// folds what is known while it writes.
type writer struct {
	*plugin.Builder
	layout
	me, world int
	element   int64
	single    bool // long messages between two ranks are offered; see give
	pairwise  bool // only the two ends of a message say how long it is; see length.go

	known map[plugin.Reg]int64 // constants
}

// Const, Add and Mul hide the Builder's, to fold what is constant.

func (w *writer) Const(v int64) plugin.Reg {
	r := w.Builder.Const(v)
	w.known[r] = v
	return r
}

func (w *writer) Add(x, y plugin.Reg) plugin.Reg {
	a, constA := w.known[x]
	b, constB := w.known[y]
	switch {
	case constA && constB:
		return w.Const(a + b)
	case constA && a == 0:
		return y
	case constB && b == 0:
		return x
	}
	return w.Builder.Add(x, y)
}

func (w *writer) Mul(x, y plugin.Reg) plugin.Reg {
	a, constA := w.known[x]
	b, constB := w.known[y]
	switch {
	case constA && constB:
		return w.Const(a * b)
	case constA && a == 0, constB && b == 1:
		return x
	case constB && b == 0, constA && a == 1:
		return y
	}
	return w.Builder.Mul(x, y)
}

// rank is a rank that is known when the plan is written, or a register that
// holds one at launch.
type rank struct {
	known int
	reg   plugin.Reg
	slot  bool
}

func (w *writer) peer(r int) rank { return rank{known: r, reg: w.Const(int64(r))} }

// root returns the rank in the root slot: the root, or the peer of send and recv.
func (w *writer) root() rank { return rank{reg: w.Slot(plugin.SlotRoot), slot: true} }

// entry returns base + r*stride.
func (w *writer) entry(base int64, r rank, stride int64) plugin.Reg {
	if !r.slot {
		return w.Const(base + int64(r.known)*stride)
	}
	return w.Add(w.Const(base), w.Mul(r.reg, w.Const(stride)))
}

// own returns a place in this rank's private region.
func (w *writer) own(offset plugin.Reg) plugin.RefID {
	return w.Region(w.Const(regionPrivate), w.Const(int64(w.me)), offset)
}

// of returns a place in r's private region.
func (w *writer) of(r rank, offset plugin.Reg) plugin.RefID {
	return w.Region(w.Const(regionPrivate), r.reg, offset)
}

// counter returns a word in this rank's region that only this rank reads.
func (w *writer) counter(offset int64) plugin.RefID { return w.own(w.Const(offset)) }

// slotOf returns the offset of the slot that message number (from 0) goes to, in
// slots that start at base.
func (w *writer) slotOf(s slots, base, number plugin.Reg) plugin.Reg {
	return w.Add(base, w.Mul(w.Mod(number, w.Const(s.count)), w.Const(s.stride)))
}

func (w *writer) next(number plugin.Reg) plugin.Reg { return w.Add(number, w.Const(1)) }

// pieces is a message cut into pieces of at most capacity bytes.
type pieces struct {
	w        *writer
	count    plugin.Reg // at least one, so that an empty message is signalled too
	capacity int64
	single   bool // it is known while the plan is written that there is one piece
}

// inPieces writes body for a message of n bytes: twice, because nearly all
// messages that are in a hurry fit one piece, and then most of the arithmetic
// falls away.
func (w *writer) inPieces(n plugin.Reg, capacity int64, body func(pieces)) {
	fits := w.Le(n, w.Const(capacity))
	w.If(fits, func() { body(w.onePiece(capacity)) })
	w.otherwise(fits, func() { body(w.manyPieces(n, capacity)) })
}

func (w *writer) onePiece(capacity int64) pieces {
	return pieces{w: w, count: w.Const(1), capacity: capacity, single: true}
}

func (w *writer) manyPieces(n plugin.Reg, capacity int64) pieces {
	return pieces{w: w, count: w.rounds(n, capacity), capacity: capacity}
}

// each writes body for piece i, from 0.
func (p pieces) each(body func(i plugin.Reg)) {
	if p.single {
		body(p.w.Const(0))
		return
	}
	p.w.Loop(p.count, body)
}

// end returns the number of messages, with those before: next is one more than the
// number of the last piece.
func (p pieces) end(before, next plugin.Reg) plugin.Reg {
	if p.single {
		return next
	}
	return p.w.Add(before, p.count)
}

// offset returns the offset of piece i.
func (p pieces) offset(i plugin.Reg) plugin.Reg { return p.w.Mul(i, p.w.Const(p.capacity)) }

// length returns the length of the piece at offset in a message of n bytes, which is
// at most as long as the one that was cut.
func (p pieces) length(n, offset plugin.Reg) plugin.Reg {
	if p.single {
		return n
	}
	return p.w.piece(n, offset, p.w.Const(p.capacity))
}

// rounds returns the number of pieces of at most capacity bytes in a message: at least
// one, so that a message without bytes is signalled too.
func (w *writer) rounds(bytes plugin.Reg, capacity int64) plugin.Reg {
	return w.Max(w.CeilDiv(bytes, w.Const(capacity)), w.Const(1))
}

// piece returns the number of bytes that lie in the capacity bytes from offset; 0 if none.
func (w *writer) piece(bytes, offset, capacity plugin.Reg) plugin.Reg {
	return w.Max(w.Min(w.Sub(bytes, offset), capacity), w.Const(0))
}

// elements turns bytes into elements.
func (w *writer) elements(bytes plugin.Reg) plugin.Reg {
	switch {
	case w.element == 1:
		return bytes
	case bytes == w.Slot(plugin.SlotBytes):
		return w.Slot(plugin.SlotCount)
	}
	return w.Div(bytes, w.Const(w.element))
}

// peers returns all ranks but this one, starting behind it, so that not all ranks read the same one at the same time.
func (w *writer) peers() []rank {
	peers := make([]rank, 0, w.world-1)
	for i := 1; i < w.world; i++ {
		peers = append(peers, w.peer((w.me+i)%w.world))
	}
	return peers
}

// contributions returns the sources of a reduction in rank order: own for this
// rank, of for the others. Every rank sums in this order, so all get the same
// bits.
func (w *writer) contributions(own plugin.RefID, of func(rank) plugin.RefID) []plugin.RefID {
	sources := make([]plugin.RefID, w.world)
	for r := range sources {
		if r == w.me {
			sources[r] = own
		} else {
			sources[r] = of(w.peer(r))
		}
	}
	return sources
}

func (w *writer) otherwise(cond plugin.Reg, body func()) {
	w.If(w.Eq(cond, w.Const(0)), body)
}
