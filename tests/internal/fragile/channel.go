package fragile

import "github.com/shunt-ccl/shunt/plugin"

// A channel has one writer, and slots that its readers give back: each publishes how many messages it has read, in a
// semaphore of its own. Before message n is written all ranks have read message n-ringSlots, whose slot it takes.

// channel describes the memory of a writer's messages.
type channel struct {
	writer  plugin.Reg
	slots   plugin.Reg // offset of the first, in the writer's region
	written plugin.RefID
	readers []int
	reader  plugin.Reg   // the one to wake; 0xFFFF wakes all
	read    plugin.RefID // this reader's counter
	credit  func(reader plugin.Reg) plugin.RefID
	mutant  string // that leaves out credit
}

const everybody plugin.Reg = plugin.None

// pair returns the channel between two ranks; one of them is this rank.
func (w *writer) pair(from, to plugin.Reg) channel {
	return channel{
		writer: from, reader: to, mutant: "no_credit",
		slots:   w.Add(w.Const(channelSlots), w.Mul(to, w.Const(ringSlots*stride))),
		written: w.own(w.Add(w.Const(written), w.Mul(to, w.Const(word)))),
		read:    w.own(w.Add(w.Const(read), w.Mul(from, w.Const(word)))),
		credit: func(reader plugin.Reg) plugin.RefID {
			return w.at(reader, w.Add(w.Const(credit), w.Mul(from, w.Const(line))))
		},
	}
}

// fromRoot returns the channel from a root to all other ranks.
func (w *writer) fromRoot(root plugin.Reg) channel {
	c := channel{
		writer: root, readers: w.peers(), reader: everybody, mutant: "no_credit_broadcast",
		slots:   w.Const(afterChannels),
		written: w.own(w.Add(w.Const(broadcastCount), w.Mul(root, w.Const(word)))),
		credit: func(reader plugin.Reg) plugin.RefID {
			return w.at(reader, w.Add(w.Const(broadcastCredit), w.Mul(root, w.Const(line))))
		},
	}
	c.read = c.written
	if w.is("shared_slots") {
		c.slots = w.Const(channelSlots)
	}
	if w.is("one_reader") && len(c.readers) > 1 {
		c.readers = c.readers[:1]
	}
	return c
}

func (w *writer) slot(c channel, number plugin.Reg) plugin.Reg {
	return w.Add(c.slots, w.Mul(w.Mod(number, w.Const(ringSlots)), w.Const(stride)))
}

// capacity returns the size of pieces.
func (w *writer) capacity() plugin.Reg {
	whole := w.Const(slotBytes)
	if !w.is("local_total") {
		return whole
	}
	total := w.SendCount(0)
	for r := 1; r < w.world; r++ {
		total = w.Add(total, w.SendCount(r))
	}
	return w.Select(w.Lt(total, w.Const(16<<10)), whole, w.Const(slotBytes/2))
}

// send writes a message of n bytes.
func (w *writer) send(c channel, n plugin.Reg, from func(offset plugin.Reg) plugin.RefID) {
	before, capacity := w.Load(c.written), w.capacity()
	pieces := w.rounds(n, capacity)
	w.Loop(pieces, func(i plugin.Reg) {
		number, offset := w.Add(before, i), w.Mul(i, capacity)
		w.room(c, number)
		slot := w.slot(c, number)
		signal := func() {
			semaphore := w.at(c.writer, slot)
			if c.reader == everybody {
				w.SignalAll(semaphore, w.next(number))
			} else {
				w.Signal(semaphore, w.next(number), c.reader)
			}
		}
		if w.is("signal_first_channel") {
			signal()
		}
		w.Copy(w.at(c.writer, w.Add(slot, w.Const(line))), from(offset), w.piece(n, offset, capacity))
		if !w.is("signal_first_channel") {
			signal()
		}
	})
	if !w.is("lost_channel") {
		w.Store(c.written, w.Add(before, pieces))
	}
}

// room waits until the slot of a message has been given back.
func (w *writer) room(c channel, number plugin.Reg) {
	if w.is(c.mutant) {
		return
	}
	behind := int64(ringSlots)
	if w.is("late_look") {
		behind += ringSlots / 2
	}
	consumed := w.next(w.Sub(number, w.Const(behind)))
	if c.reader != everybody {
		w.Wait(c.credit(c.reader), consumed, c.reader)
		return
	}
	for _, r := range c.readers {
		w.Wait(c.credit(w.rank(r)), consumed, w.rank(r))
	}
}

// receive reads a message of n bytes.
func (w *writer) receive(c channel, n plugin.Reg, to func(offset plugin.Reg) plugin.RefID) {
	w.when("zero_message", func() plugin.Reg { return n }, func() {
		before, capacity := w.Load(c.read), w.capacity()
		pieces := w.rounds(n, capacity)
		w.Loop(pieces, func(i plugin.Reg) {
			number, offset := w.Add(before, i), w.Mul(i, capacity)
			slot, next := w.slot(c, number), w.next(number)
			giveBack := func() { w.Signal(c.credit(w.rank(w.me)), next, c.writer) }
			w.Wait(w.at(c.writer, slot), next, c.writer)
			if w.is("early_credit") {
				giveBack()
			}
			w.Copy(to(offset), w.at(c.writer, w.Add(slot, w.Const(line))), w.piece(n, offset, capacity))
			if !w.is("early_credit") {
				giveBack() // releases the read
			}
		})
		w.Store(c.read, w.Add(before, pieces))
	})
}

// from and to are places behind a displacement of the caller's memory.
func (w *writer) from(displ plugin.Reg) func(plugin.Reg) plugin.RefID {
	return func(offset plugin.Reg) plugin.RefID { return w.Send(w.Add(displ, offset)) }
}

func (w *writer) to(displ plugin.Reg) func(plugin.Reg) plugin.RefID {
	return func(offset plugin.Reg) plugin.RefID { return w.Recv(w.Add(displ, offset)) }
}

// asRoot runs one of two parts.
func (w *writer) asRoot(root, others func(r plugin.Reg)) {
	r := w.Slot(plugin.SlotRoot)
	isRoot := w.Eq(r, w.rank(w.me))
	w.If(isRoot, func() { root(r) })
	w.otherwise(isRoot, func() { others(r) })
}

func broadcast(w *writer) {
	bytes, zero := w.Slot(plugin.SlotBytes), w.Const(0)
	w.Track(func() {
		w.asRoot(
			func(r plugin.Reg) {
				w.send(w.fromRoot(r), bytes, w.from(zero))
				w.Copy(w.Recv(zero), w.Send(zero), bytes)
			},
			func(r plugin.Reg) { w.receive(w.fromRoot(r), bytes, w.to(zero)) })
	})
}

func allToAllV(w *writer) {
	me := w.rank(w.me)
	for _, p := range w.peers() {
		w.Track(func() { w.send(w.pair(me, w.rank(p)), w.SendCount(p), w.from(w.SendDispl(p))) })
	}
	for _, p := range w.peers() {
		w.Track(func() { w.receive(w.pair(w.rank(p), me), w.RecvCount(p), w.to(w.RecvDispl(p))) })
	}
	w.Track(w.CopyOwn)
}

func gather(w *writer) {
	me, zero := w.rank(w.me), w.Const(0)
	w.Track(func() {
		w.asRoot(
			func(plugin.Reg) {
				for _, p := range w.peers() {
					w.receive(w.pair(w.rank(p), me), w.RecvCount(p), w.to(w.RecvDispl(p)))
				}
				w.Copy(w.Recv(w.RecvDispl(w.me)), w.Send(zero), w.Slot(plugin.SlotBytes))
			},
			func(r plugin.Reg) { w.send(w.pair(me, r), w.Slot(plugin.SlotBytes), w.from(zero)) })
	})
}

func scatter(w *writer) {
	me, zero := w.rank(w.me), w.Const(0)
	w.Track(func() {
		w.asRoot(
			func(plugin.Reg) {
				for _, p := range w.peers() {
					w.send(w.pair(me, w.rank(p)), w.SendCount(p), w.from(w.SendDispl(p)))
				}
				w.Copy(w.Recv(zero), w.Send(w.SendDispl(w.me)), w.Slot(plugin.SlotBytes))
			},
			func(r plugin.Reg) { w.receive(w.pair(r, me), w.Slot(plugin.SlotBytes), w.to(zero)) })
	})
}
