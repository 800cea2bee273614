package fragile

import "github.com/shunt-ccl/shunt/plugin"

// An exchange has rounds, equally many on all ranks: every rank publishes a slot, waits for those of all ranks and
// reads them. Two slots in turn suffice: a rank writes the slot of round n+2 once all ranks have signaled round n+1,
// and so have read round n.

// exchange runs rounds for blocks of at most most bytes, of which of says what each
// rank has. publish and read are given where the piece begins in its block, where it
// stands in the slots, and its largest length.
func (w *writer) exchange(most plugin.Reg, of func(r int) plugin.Reg, publish, read func(offset, data plugin.Reg)) {
	counter := w.own(w.Const(exchangeCounter))
	before := w.Load(counter)
	if w.is("constant_epoch") {
		before = w.Const(1)
	}
	capacity := w.Const(slotBytes)
	if w.is("local_alignment") {
		aligned := w.Eq(w.Mod(w.Address(w.Send(w.Const(0))), w.Const(line)), w.Const(0))
		capacity = w.Select(aligned, capacity, w.Const(slotBytes/2))
	}
	rounds := w.rounds(most, capacity)
	if w.is("local_place") {
		inPlace := w.Eq(w.Address(w.Send(w.Const(0))), w.Address(w.Recv(w.Const(0))))
		rounds = w.Max(w.Sub(rounds, inPlace), w.Const(0))
	}
	slots := int64(2)
	if w.is("one_slot") {
		slots = 1
	}
	w.Loop(rounds, func(i plugin.Reg) {
		number := w.Add(before, i)
		slot := w.Add(w.Const(exchangeSlots), w.Mul(w.Mod(number, w.Const(slots)), w.Const(stride)))
		data, offset, epoch := w.Add(slot, w.Const(line)), w.Mul(i, capacity), w.epoch(number)
		signal := func() {
			w.when("zero_signal", func() plugin.Reg { return of(w.me) }, func() {
				w.SignalAll(w.own(slot), epoch) // releases what was published
			})
		}
		if w.is("signal_first") {
			signal()
		}
		publish(offset, data)
		if !w.is("signal_first") {
			signal()
		}
		if w.is("read_first") {
			read(offset, data)
		}
		w.when("zero_round", func() plugin.Reg { return most }, func() {
			w.when("local_cache", w.unlikeLast, func() {
				for _, p := range w.peers() {
					w.when("zero_wait", func() plugin.Reg { return of(p) }, func() {
						w.when("zero_signal", func() plugin.Reg { return of(p) }, func() {
							w.Wait(w.at(w.rank(p), slot), epoch, w.rank(p))
						})
					})
				}
			})
		})
		if !w.is("read_first") {
			read(offset, data)
		}
	})
	switch {
	case w.is("lost_counter"):
	case w.is("reset_counter"):
		w.Store(counter, w.Const(0))
	default:
		w.Store(counter, w.Add(before, rounds))
	}
	if w.is("local_cache") {
		w.Store(w.own(w.Const(lastTotal)), w.Slot(plugin.SlotBytes))
	}
}

// unlikeLast returns 1 if this rank has another length than the last time.
func (w *writer) unlikeLast() plugin.Reg {
	return w.Ne(w.Load(w.own(w.Const(lastTotal))), w.Slot(plugin.SlotBytes))
}

func allGather(w *writer) {
	w.Track(func() {
		length := func(r int, offset plugin.Reg) plugin.Reg {
			return w.piece(w.contribution(r), offset, w.Const(slotBytes))
		}
		w.exchange(w.largest(w.contribution), w.contribution,
			func(offset, data plugin.Reg) { w.Copy(w.own(data), w.Send(offset), length(w.me, offset)) },
			func(offset, data plugin.Reg) {
				for _, p := range w.peers() {
					w.Copy(w.Recv(w.Add(w.RecvDispl(p), offset)), w.at(w.rank(p), data), length(p, offset))
				}
			})
		w.Copy(w.Recv(w.RecvDispl(w.me)), w.Send(w.Const(0)), w.contribution(w.me))
	})
}

// sum reduces n bytes of all ranks, in rank order: own here, and data elsewhere.
func (w *writer) sum(dst, own plugin.RefID, data, n plugin.Reg) {
	sources := make([]plugin.RefID, w.world)
	for r := range sources {
		sources[r] = own
		if r != w.me {
			sources[r] = w.at(w.rank(r), data)
		}
	}
	w.Reduce(dst, w.Div(n, w.Const(w.element)), sources...)
}

func allReduce(w *writer) {
	bytes := w.Slot(plugin.SlotBytes)
	all := func(int) plugin.Reg { return bytes }
	w.Track(func() {
		w.exchange(bytes, all,
			func(offset, data plugin.Reg) {
				w.Copy(w.own(data), w.SendScaled(offset), w.piece(bytes, offset, w.Const(slotBytes)))
			},
			func(offset, data plugin.Reg) {
				w.sum(w.Recv(offset), w.SendScaled(offset), data, w.piece(bytes, offset, w.Const(slotBytes)))
			})
	})
}

// reduceScatter has a slot divided into equal parts, one for each rank.
func reduceScatter(w *writer) {
	bytes := w.Slot(plugin.SlotBytes)
	part := int64(slotBytes / w.world / line * line)
	w.Track(func() {
		length := func(offset plugin.Reg) plugin.Reg { return w.piece(bytes, offset, w.Const(part)) }
		// Offsets are of whole slots: of a block only a part is published in each.
		inBlock := func(offset plugin.Reg) plugin.Reg { return w.Mul(w.Div(offset, w.Const(slotBytes)), w.Const(part)) }
		rounds := w.rounds(bytes, w.Const(part))
		w.exchange(w.Mul(rounds, w.Const(slotBytes)), func(int) plugin.Reg { return bytes },
			func(offset, data plugin.Reg) {
				offset = inBlock(offset)
				for _, p := range w.peers() {
					w.Copy(w.own(w.Add(data, w.Const(int64(p)*part))), w.SendScaled(w.Add(w.SendDispl(p), offset)), length(offset))
				}
			},
			func(offset, data plugin.Reg) {
				offset = inBlock(offset)
				w.sum(w.Recv(offset), w.SendScaled(w.Add(w.SendDispl(w.me), offset)), w.Add(data, w.Const(int64(w.me)*part)),
					length(offset))
			})
	})
}
