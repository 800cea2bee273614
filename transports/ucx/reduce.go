package ucx

// #include "ucx.h"
import "C"

import "github.com/shunt-ccl/shunt/plugin"

// whole is the message that each rank reduces, for a rank that gets all of it.
func (w *writer) whole(int) part { return part{w.Const(0), w.Slot(plugin.SlotBytes)} }

// share returns a rank's share of a message: whole cache lines, but for the last.
func (w *writer) share(rank int) part {
	const line = 64
	bytes := w.Slot(plugin.SlotBytes)
	size := w.Mul(w.CeilDiv(bytes, w.Const(line*int64(w.req.World))), w.Const(line))
	at := w.Min(w.Mul(size, w.Const(int64(rank))), bytes)
	return part{at, w.Min(size, w.Sub(bytes, at))}
}

// toRoot is the whole message for the root, and nothing for the others.
func (w *writer) toRoot(rank int) part {
	return part{w.Const(0), w.when(rank, w.Slot(plugin.SlotBytes))}
}

func (w *writer) allReduceOneShot() {
	w.combine(w.whole, func(offset, n plugin.Reg) plugin.RefID { return w.Recv(offset) }, nil)
}

func (w *writer) reduceDirect() {
	w.combine(w.toRoot, func(offset, n plugin.Reg) plugin.RefID { return w.Recv(offset) }, nil)
}

func (w *writer) reduceScatter() {
	w.combine(func(rank int) part { return part{w.SendDispl(rank), w.SendCount(rank)} },
		func(offset, n plugin.Reg) plugin.RefID { return w.Recv(offset) }, nil)
}

// allReduceTwoShot combines a share on each rank, and hands the shares round.
func (w *writer) allReduceTwoShot() {
	mine := w.share(w.req.Rank)
	w.combine(w.share, func(offset, n plugin.Reg) plugin.RefID { return w.Recv(w.Add(mine.at, offset)) }, nil)
	w.exchange(C.UX_RECV, C.UX_RECV, w.Const(0), func(int) part { return mine }, w.share)
}

// reduceTwoShot combines a share on each rank, whose pieces go to the root as they are done.
func (w *writer) reduceTwoShot() {
	me := w.req.Rank
	mine := w.share(me)
	done := w.e.layout.incoming(me) // nothing comes from this rank itself
	w.combine(w.share, func(_, n plugin.Reg) plugin.RefID { return w.place(done) },
		func(round, offset, n plugin.Reg) {
			w.Copy(w.Recv(w.Add(mine.at, offset)), w.place(done), w.when(me, n))
			w.exchange(C.UX_MEMORY, C.UX_RECV, w.Ne(round, w.Const(0)),
				func(rank int) part { return part{w.Const(done), w.when(rank, n)} },
				func(rank int) part {
					p := w.share(rank)
					return part{w.Add(p.at, offset), w.when(me, w.now(p.bytes, offset))}
				})
		})
}

// place returns a place in the endpoint's region.
func (w *writer) place(at int64) plugin.RefID {
	return w.Region(w.Const(int64(w.e.region.ID)), w.Rank(), w.Const(at))
}

// now returns how many bytes of a message the piece at an offset has.
func (w *writer) now(bytes, offset plugin.Reg) plugin.Reg {
	return w.Max(w.Min(w.Sub(bytes, offset), w.Const(w.e.layout.piece)), w.Const(0))
}

// combine writes rounds in each of which a piece of every rank's block goes to that rank, and this one combines those
// of its own block. block says which part of send memory a rank combines, to where the result goes, then what follows
// each piece.
func (w *writer) combine(block func(rank int) part, to func(offset, n plugin.Reg) plugin.RefID,
	then func(round, offset, n plugin.Reg)) {
	zero := w.Const(0)
	blocks := make([]part, w.req.World)
	most := zero
	for rank := range blocks {
		blocks[rank] = block(rank)
		most = w.Max(most, blocks[rank].bytes)
	}
	mine := blocks[w.req.Rank]
	scaled := w.req.Op == plugin.OpPremulSum
	from := C.int32_t(C.UX_SEND)
	if scaled {
		from = C.UX_MEMORY
	}
	w.Loop(w.Max(w.CeilDiv(most, w.Const(w.e.layout.piece)), w.Const(1)), func(round plugin.Reg) {
		offset := w.Mul(round, w.Const(w.e.layout.piece))
		n := w.now(mine.bytes, offset)
		w.exchange(from, C.UX_MEMORY, w.Ne(round, zero),
			func(rank int) part {
				p := part{w.Add(blocks[rank].at, offset), w.now(blocks[rank].bytes, offset)}
				if scaled {
					at := w.e.layout.outgoing(rank)
					w.Copy(w.place(at), w.SendScaled(p.at), p.bytes)
					p.at = w.Const(at)
				}
				return p
			},
			func(rank int) part { return part{w.Const(w.e.layout.incoming(rank)), n} })
		sources := make([]plugin.RefID, w.req.World)
		for rank := range sources {
			if sources[rank] = w.place(w.e.layout.incoming(rank)); rank == w.req.Rank {
				sources[rank] = w.SendScaled(w.Add(mine.at, offset))
			}
		}
		w.Reduce(to(offset, n), w.Div(n, w.Const(w.req.DType.Bytes())), sources...)
		if then != nil {
			then(round, offset, n)
		}
	})
}
