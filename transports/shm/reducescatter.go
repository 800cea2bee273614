package shm

import "github.com/shunt-ccl/shunt/plugin"

// scatterMost returns the largest block of reduce_scatter(v), on which the length of each rank's part of a slot
// depends.
func (w *writer) scatterMost(varying bool) plugin.Reg {
	if !varying {
		return w.Slot(plugin.SlotBytes)
	}
	return w.largest(w.SendCount)
}

func (w *writer) scatterCount(varying bool) func(r int) plugin.Reg {
	if varying {
		return w.SendCount
	}
	return func(int) plugin.Reg { return w.Slot(plugin.SlotBytes) }
}

// parts divides a slot among the ranks it has data for. All parts are as long
// as the largest piece of this round, so that small messages lie close
// together, behind the semaphore.
type parts struct {
	offset plugin.Reg // of this round's pieces in their blocks
	length plugin.Reg // of a part
	cut    pieces     // of the largest block
}

// partCapacity returns the most that one of the world's parts of a slot may hold.
func (w *writer) partCapacity(s slots) int64 {
	return s.capacity / int64(w.world) / line * line
}

func (w *writer) parts(most, index plugin.Reg, cut pieces) parts {
	offset := cut.offset(index)
	return parts{offset: offset, length: cut.length(most, offset), cut: cut}
}

// part returns the offset of rank r's part in a slot's data.
func (w *writer) part(p parts, data plugin.Reg, r int) plugin.Reg {
	return w.Add(data, w.Mul(p.length, w.Const(int64(r))))
}

// stageParts copies a piece of the block for each peer into this rank's slot.
func (w *writer) stageParts(p parts, data plugin.Reg, count func(int) plugin.Reg, from func(plugin.Reg) plugin.RefID) {
	for _, to := range w.peers() {
		n := p.cut.length(count(to.known), p.offset)
		w.Copy(w.own(w.part(p, data, to.known)), from(w.Add(w.SendDispl(to.known), p.offset)), n)
	}
}

// reduceParts reduces this rank's part of the slots of all ranks.
func (w *writer) reduceParts(p parts, data plugin.Reg, count func(int) plugin.Reg) {
	at := w.part(p, data, w.me)
	own := w.SendScaled(w.Add(w.SendDispl(w.me), p.offset))
	n := w.elements(p.cut.length(count(w.me), p.offset))
	w.Reduce(w.Recv(p.offset), n, w.contributions(own, func(r rank) plugin.RefID { return w.of(r, at) })...)
}

// reduceScatterOneShot: every rank publishes what it has for the others, and reduces its own block.
func reduceScatterOneShot(varying bool) generator {
	return func(w *writer) {
		count := w.scatterCount(varying)
		w.Track(func() {
			most := w.scatterMost(varying)
			w.inPieces(most, w.partCapacity(w.layout.exchange), func(cut pieces) {
				var p parts
				w.exchange(cut,
					func(r round) {
						p = w.parts(most, r.index, cut)
						w.stageParts(p, r.data, count, w.SendScaled)
					},
					func(r round) { w.reduceParts(p, r.data, count) })
			})
		})
	}
}

// reduceScatterPipelined: the same, block by block.
func reduceScatterPipelined(varying bool) generator {
	return func(w *writer) {
		count := w.scatterCount(varying)
		w.Track(func() {
			most := w.scatterMost(varying)
			cut := w.manyPieces(most, w.partCapacity(w.blocks))
			w.pipeline(cut.count,
				func(b block) {
					w.stageParts(w.parts(most, b.index, cut), b.data, count, w.SendScaled)
				}, nil,
				func(b block) {
					for _, p := range w.peers() {
						w.Wait(w.of(p, b.staged), b.epoch, p.reg)
					}
					w.reduceParts(w.parts(most, b.index, cut), b.data, count)
				})
		})
	}
}
