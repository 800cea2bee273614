package shm

import "github.com/shunt-ccl/shunt/plugin"

// A ring has one writer and, for each slot, one or more readers. The writer
// may be far ahead, so slots are reused under credits: each reader publishes
// how many messages it has consumed, at every half of the ring, and the writer
// looks at the credits when it enters a half. Before it writes messages n to
// n+half-1 (n a multiple of half) all readers must have consumed everything
// up to n-half, for those slots held messages n-2*half to n-half-1. The credit
// that it waits for always comes: n-half is a multiple of half, where readers
// publish, and all messages up to n are there for them to consume.

// producedWord returns the counter of what this rank has written for reader.
func (w *writer) producedWord(r ring, reader rank) plugin.RefID {
	return w.own(w.entry(r.produced, reader, word))
}

// consumedWord returns the counter of what this rank has read from source.
func (w *writer) consumedWord(r ring, source rank) plugin.RefID {
	return w.own(w.entry(r.consumed, source, word))
}

// room waits until the slot of message number is free. readers are all that
// read this ring.
func (w *writer) room(r ring, number plugin.Reg, readers ...rank) {
	half := w.Const(r.count / 2)
	w.otherwise(w.Mod(number, half), func() {
		consumed := w.Sub(number, half)
		for _, reader := range readers {
			w.Wait(w.of(reader, w.Const(r.credits+int64(w.me)*line)), consumed, reader.reg)
		}
	})
}

// consume tells source how many messages this rank has read.
func (w *writer) consume(r ring, consumed plugin.Reg, source rank) {
	w.otherwise(w.Mod(consumed, w.Const(r.count/2)), func() {
		// Releases the reads of the slots before: the writer, which acquires
		// this value, overwrites them after.
		w.Signal(w.own(w.entry(r.credits, source, line)), consumed, source.reg)
	})
}

// send writes a message for one peer: n bytes from the place that from names
// for each offset.
func (w *writer) send(p pair, to rank, n plugin.Reg, from func(offset plugin.Reg) plugin.RefID) {
	w.bySize(p, n, func(r ring, cut pieces) {
		counter := w.producedWord(r, to)
		before := w.Load(counter)
		base := w.entry(r.base, to, r.span)
		var next plugin.Reg
		cut.each(func(i plugin.Reg) {
			number := w.Add(before, i)
			w.room(r, number, to)
			next = w.next(number)
			offset := cut.offset(i)
			slot := w.slotOf(r.slots, base, number)
			w.Copy(w.own(w.Add(slot, w.Const(r.head))), from(offset), cut.length(n, offset))
			w.Signal(w.own(slot), w.arrival(p, r, slot, next, n), to.reg)
		})
		w.Store(counter, cut.end(before, next))
	})
}

// receive reads a message from one peer: n bytes to the place that to names
// for each offset.
func (w *writer) receive(p pair, source rank, n plugin.Reg, to func(offset plugin.Reg) plugin.RefID) {
	w.bySize(p, n, func(r ring, cut pieces) {
		counter := w.consumedWord(r, source)
		before := w.Load(counter)
		base := w.Const(r.base + int64(w.me)*r.span)
		var next plugin.Reg
		cut.each(func(i plugin.Reg) {
			number := w.Add(before, i)
			next = w.next(number)
			offset := cut.offset(i)
			slot := w.slotOf(r.slots, base, number)
			w.arrive(p, r, source, slot, next, n)
			w.Copy(to(offset), w.of(source, w.Add(slot, w.Const(r.head))), cut.length(n, offset))
			w.consume(r, next, source)
		})
		w.Store(counter, cut.end(before, next))
	})
}

// bySize writes body twice: for messages of n bytes that fit a small slot, and
// for all others.
func (w *writer) bySize(p pair, n plugin.Reg, body func(r ring, cut pieces)) {
	small := w.Le(n, w.Const(p.small.capacity))
	w.If(small, func() { body(p.small, w.onePiece(p.small.capacity)) })
	w.otherwise(small, func() { body(p.large, w.manyPieces(n, p.large.capacity)) })
}
