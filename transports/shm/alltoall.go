package shm

import "github.com/shunt-ccl/shunt/plugin"

// copyParts copies this rank's part of p's slot to the receive memory.
func (w *writer) copyParts(q parts, data plugin.Reg, p rank) {
	w.Copy(w.Recv(w.Add(w.RecvDispl(p.known), q.offset)), w.of(p, w.part(q, data, w.me)), q.length)
}

// allToAllOneShot: every rank publishes what it has for the others, and copies what they have for it. It does not work
// in place.
func allToAllOneShot(w *writer) {
	bytes := w.Slot(plugin.SlotBytes)
	w.Track(func() {
		w.inPieces(bytes, w.partCapacity(w.layout.exchange), func(cut pieces) {
			var q parts
			w.exchange(cut,
				func(r round) {
					q = w.parts(bytes, r.index, cut)
					w.stageParts(q, r.data, w.SendCount, w.Send)
				},
				func(r round) {
					for _, p := range w.peers() {
						w.copyParts(q, r.data, p)
					}
				})
		})
		w.CopyOwn()
	})
}

// allToAllSingleCopy: every rank offers its data, and copies its own block of each rank's data from where it is. It
// does not work in place.
func allToAllSingleCopy(w *writer) {
	bytes := w.Slot(plugin.SlotBytes)
	w.Track(func() {
		w.mutual(func(p rank, offered func(plugin.Reg) plugin.RefID) {
			w.Copy(w.Recv(w.RecvDispl(p.known)), offered(w.Mul(bytes, w.Const(int64(w.me)))), bytes)
		})
	})
	w.Track(w.CopyOwn)
}

// allToAllPipelined: the same as allToAllOneShot, block by block. It does not work in place.
func allToAllPipelined(w *writer) {
	bytes := w.Slot(plugin.SlotBytes)
	w.Track(func() {
		cut := w.manyPieces(bytes, w.partCapacity(w.blocks))
		w.pipeline(cut.count,
			func(b block) {
				w.stageParts(w.parts(bytes, b.index, cut), b.data, w.SendCount, w.Send)
			}, nil,
			func(b block) {
				q := w.parts(bytes, b.index, cut)
				for _, p := range w.peers() {
					w.Wait(w.of(p, b.staged), b.epoch, p.reg)
					w.copyParts(q, b.data, p)
				}
			})
		w.CopyOwn()
	})
}
