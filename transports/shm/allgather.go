package shm

import "github.com/shunt-ccl/shunt/plugin"

// largest returns the largest of one register for each rank. All ranks know all of
// them, so it is the same everywhere.
func (w *writer) largest(of func(r int) plugin.Reg) plugin.Reg {
	most := of(0)
	for r := 1; r < w.world; r++ {
		most = w.Max(most, of(r))
	}
	return most
}

// gatherCount returns the number of bytes that rank r contributes to all_gather(v).
func (w *writer) gatherCount(varying bool) func(r int) plugin.Reg {
	if varying {
		return w.RecvCount
	}
	return func(int) plugin.Reg { return w.Slot(plugin.SlotBytes) }
}

func (w *writer) gatherMost(varying bool) plugin.Reg {
	if !varying {
		return w.Slot(plugin.SlotBytes)
	}
	return w.largest(w.RecvCount)
}

// allGatherOneShot: every rank publishes its data, and copies that of all ranks.
func allGatherOneShot(varying bool) generator {
	return func(w *writer) {
		count := w.gatherCount(varying)
		w.Track(func() {
			w.inPieces(w.gatherMost(varying), w.layout.exchange.capacity, func(cut pieces) {
				var offset plugin.Reg
				w.exchange(cut,
					func(r round) {
						offset = cut.offset(r.index)
						w.Copy(w.own(r.data), w.Send(offset), cut.length(count(w.me), offset))
					},
					func(r round) {
						for _, p := range w.peers() {
							n := cut.length(count(p.known), offset)
							w.Copy(w.Recv(w.Add(w.RecvDispl(p.known), offset)), w.of(p, r.data), n)
						}
					})
			})
			w.Copy(w.Recv(w.RecvDispl(w.me)), w.Send(w.Const(0)), count(w.me))
		})
	}
}

// allGatherSingleCopy: every rank offers its data, and copies that of all ranks from where it is.
func allGatherSingleCopy(varying bool) generator {
	return func(w *writer) {
		count := w.gatherCount(varying)
		w.Track(func() {
			w.mutual(func(p rank, offered func(plugin.Reg) plugin.RefID) {
				w.Copy(w.Recv(w.RecvDispl(p.known)), offered(w.Const(0)), count(p.known))
			})
		})
		w.Track(func() { w.Copy(w.Recv(w.RecvDispl(w.me)), w.Send(w.Const(0)), count(w.me)) })
	}
}

// allGatherPipelined: the same as allGatherOneShot, block by block.
func allGatherPipelined(varying bool) generator {
	return func(w *writer) {
		count := w.gatherCount(varying)
		capacity := w.blocks.capacity
		w.Track(func() {
			w.pipeline(w.rounds(w.gatherMost(varying), capacity),
				func(b block) {
					offset := w.Mul(b.index, w.Const(capacity))
					n := w.piece(count(w.me), offset, w.Const(capacity))
					w.Copy(w.own(b.data), w.Send(offset), n)
				}, nil,
				func(b block) {
					offset := w.Mul(b.index, w.Const(capacity))
					// The own piece was read when it was staged, so it may still be
					// in a cache.
					mine := w.piece(count(w.me), offset, w.Const(capacity))
					w.Copy(w.Recv(w.Add(w.RecvDispl(w.me), offset)), w.Send(offset), mine)
					for _, p := range w.peers() {
						w.Wait(w.of(p, b.staged), b.epoch, p.reg)
						n := w.piece(count(p.known), offset, w.Const(capacity))
						w.Copy(w.Recv(w.Add(w.RecvDispl(p.known), offset)), w.of(p, b.data), n)
					}
				})
		})
	}
}
