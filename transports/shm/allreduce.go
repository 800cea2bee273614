package shm

import "github.com/shunt-ccl/shunt/plugin"

// allReduceOneShot: every rank publishes its data, and reduces that of all ranks.
func allReduceOneShot(w *writer) {
	bytes := w.Slot(plugin.SlotBytes)
	w.Track(func() {
		w.inPieces(bytes, w.layout.exchange.capacity, func(p pieces) {
			var offset, n plugin.Reg
			w.exchange(p,
				func(r round) {
					offset = p.offset(r.index)
					n = p.length(bytes, offset)
					w.Copy(w.own(r.data), w.SendScaled(offset), n)
				},
				func(r round) {
					sources := w.contributions(w.SendScaled(offset), func(p rank) plugin.RefID { return w.of(p, r.data) })
					w.Reduce(w.Recv(offset), w.elements(n), sources...)
				})
		})
	})
}

// shards divides a block of n bytes among the ranks, in pieces of whole lines.
type shards struct{ n, each plugin.Reg }

func (w *writer) shards(n plugin.Reg) shards {
	return shards{n: n, each: w.Mul(w.CeilDiv(n, w.Const(int64(w.world)*line)), w.Const(line))}
}

// start returns the offset of rank r's shard in the block; it is at most n.
func (w *writer) start(s shards, r int) plugin.Reg {
	return w.Min(w.Mul(s.each, w.Const(int64(r))), s.n)
}

// allReduceTwoShot: block by block, every rank stages its data, reduces its own shard of the data of all ranks, and
// gathers the other shards.
func allReduceTwoShot(w *writer) {
	bytes := w.Slot(plugin.SlotBytes)
	capacity := w.blocks.capacity
	w.Track(func() {
		w.pipeline(w.rounds(bytes, capacity),
			func(b block) { w.stageForReduction(b, bytes) },
			func(b block) { w.reduceShard(b, bytes) },
			func(b block) {
				offset := w.Mul(b.index, w.Const(capacity))
				s := w.shards(w.piece(bytes, offset, w.Const(capacity)))
				w.gatherShard(b, s, offset, w.peer(w.me))
				for _, p := range w.peers() {
					w.Wait(w.of(p, b.result), b.epoch, p.reg)
					w.gatherShard(b, s, offset, p)
				}
			})
	})
}

// stageForReduction stages all shards of a block but this rank's own.
func (w *writer) stageForReduction(b block, bytes plugin.Reg) {
	capacity := w.Const(w.blocks.capacity)
	offset := w.Mul(b.index, capacity)
	s := w.shards(w.piece(bytes, offset, capacity))
	start, end := w.start(s, w.me), w.start(s, w.me+1)
	if w.me > 0 {
		w.Copy(w.own(b.data), w.SendScaled(offset), start)
	}
	if w.me < w.world-1 {
		w.Copy(w.own(w.Add(b.data, end)), w.SendScaled(w.Add(offset, end)), w.Sub(s.n, end))
	}
}

// reduceShard reduces this rank's shard of a block into this rank's slot.
func (w *writer) reduceShard(b block, bytes plugin.Reg) {
	capacity := w.Const(w.blocks.capacity)
	offset := w.Mul(b.index, capacity)
	s := w.shards(w.piece(bytes, offset, capacity))
	start := w.start(s, w.me)
	at := w.Add(b.data, start)
	sources := w.contributions(w.SendScaled(w.Add(offset, start)), func(p rank) plugin.RefID { return w.of(p, at) })
	w.Reduce(w.own(at), w.elements(w.Sub(w.start(s, w.me+1), start)), sources...)
}

// gatherShard copies p's shard of a block, which starts at offset of the
// message, to the receive memory.
func (w *writer) gatherShard(b block, s shards, offset plugin.Reg, p rank) {
	start := w.start(s, p.known)
	w.Copy(w.Recv(w.Add(offset, start)), w.of(p, w.Add(b.data, start)), w.Sub(w.start(s, p.known+1), start))
}
