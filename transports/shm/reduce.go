package shm

import "github.com/shunt-ccl/shunt/plugin"

// reduceDirect: every other rank sends its data to the root, piece by piece; the root
// reduces.
func reduceDirect(w *writer) {
	bytes, root := w.Slot(plugin.SlotBytes), w.root()
	w.Track(func() {
		isRoot := w.Eq(root.reg, w.Const(int64(w.me)))
		w.If(isRoot, func() { w.bySize(w.personal, bytes, w.reducePieces) })
		w.otherwise(isRoot, func() { w.send(w.personal, root, bytes, w.SendScaled) })
	})
}

// reducePieces writes the root's part of reduceDirect.
func (w *writer) reducePieces(r ring, cut pieces) {
	bytes := w.Slot(plugin.SlotBytes)
	before := make([]plugin.Reg, w.world)
	for _, p := range w.peers() {
		before[p.known] = w.Load(w.consumedWord(r, p))
	}
	base := w.Const(r.base + int64(w.me)*r.span)
	cut.each(func(i plugin.Reg) {
		offset := cut.offset(i)
		slot := make([]plugin.Reg, w.world)
		for _, p := range w.peers() {
			number := w.Add(before[p.known], i)
			slot[p.known] = w.slotOf(r.slots, base, number)
			w.arrive(w.personal, r, p, slot[p.known], w.next(number), bytes)
		}
		sources := w.contributions(w.SendScaled(offset), func(p rank) plugin.RefID {
			return w.of(p, w.Add(slot[p.known], w.Const(r.head)))
		})
		w.Reduce(w.Recv(offset), w.elements(cut.length(bytes, offset)), sources...)
		for _, p := range w.peers() {
			w.consume(r, w.next(w.Add(before[p.known], i)), p)
		}
	})
	for _, p := range w.peers() {
		w.Store(w.consumedWord(r, p), w.Add(before[p.known], cut.count))
	}
}

// reduceTwoShot: as allReduceTwoShot, but only the root gathers.
func reduceTwoShot(w *writer) {
	bytes, root := w.Slot(plugin.SlotBytes), w.root()
	capacity := w.blocks.capacity
	w.Track(func() {
		isRoot := w.Eq(root.reg, w.Const(int64(w.me)))
		w.pipeline(w.rounds(bytes, capacity),
			func(b block) { w.stageForReduction(b, bytes) },
			func(b block) { w.reduceShard(b, bytes) },
			func(b block) {
				w.If(isRoot, func() {
					offset := w.Mul(b.index, w.Const(capacity))
					s := w.shards(w.piece(bytes, offset, w.Const(capacity)))
					w.gatherShard(b, s, offset, w.peer(w.me))
					for _, p := range w.peers() {
						w.Wait(w.of(p, b.result), b.epoch, p.reg)
						w.gatherShard(b, s, offset, p)
					}
				})
			})
	})
}
