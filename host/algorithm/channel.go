package algorithm

import "github.com/shunt-ccl/shunt/plugin"

// A channel carries messages from one rank to another, in order, in pieces of
// at most a slot. The writer puts a piece into the reader's scratch and raises
// the slot's semaphore there to the piece's number, counted from 1. The reader
// publishes how many pieces it has consumed, in the writer's scratch, at every
// half of the slots; the writer looks there when it enters a half. Before it
// writes pieces n to n+half-1 (n a multiple of half) everything up to n-half
// must be consumed, for their slots held pieces n-2*half to n-half-1. That credit
// always comes: readers publish at multiples of half, and everything up to n is
// there for them to read.

const half = slotsEach / 2

// outgoing is the writer's end of a channel while a plan uses it.
type outgoing struct {
	class  class
	to     rank
	before plugin.Reg // pieces written by earlier operations
}

// incoming is the reader's end.
type incoming struct {
	class  class
	from   rank
	before plugin.Reg
}

func (w *writer) outgoing(c class, to rank) outgoing {
	return outgoing{c, to, w.Load(w.own(w.entry(w.producedWord(c), to, word)))}
}

func (w *writer) incoming(c class, from rank) incoming {
	return incoming{c, from, w.Load(w.own(w.entry(w.consumedWord(c), from, word)))}
}

// sent stores how far the writer has got, for the next operation.
func (w *writer) sent(o outgoing, pieces plugin.Reg) {
	w.Store(w.own(w.entry(w.producedWord(o.class), o.to, word)), w.Add(o.before, pieces))
}

// received stores how far the reader has got.
func (w *writer) received(i incoming, pieces plugin.Reg) {
	w.Store(w.own(w.entry(w.consumedWord(i.class), i.from, word)), w.Add(i.before, pieces))
}

// slot returns the offset of the slot of a piece, in a run of slots.
func (w *writer) slot(first, number plugin.Reg) plugin.Reg {
	return w.Add(first, w.Mul(w.Mod(number, w.Const(slotsEach)), w.Const(w.stride)))
}

// put writes piece number index of this operation: n bytes from src, of a message
// of the given length, if the message carries it.
func (w *writer) put(o outgoing, index plugin.Reg, src plugin.RefID, n plugin.Reg, length ...plugin.Reg) {
	number := w.Add(o.before, index)
	w.otherwise(w.Mod(number, w.Const(half)), func() {
		credit := w.own(w.entry(w.creditLine(o.class), o.to, line))
		w.Wait(credit, w.Sub(number, w.Const(half)), o.to.reg)
	})
	slot := w.slot(w.Const(w.slotsFrom(o.class, w.me)), number)
	w.Copy(w.of(o.to, w.Add(slot, w.Const(line))), src, n)
	for _, bytes := range length {
		w.Store(w.of(o.to, w.Add(slot, w.Const(behind))), bytes)
	}
	// Releases the piece: the reader's wait for this value acquires it.
	w.Signal(w.of(o.to, slot), w.Add(number, w.Const(1)), o.to.reg)
}

// slotOfPiece returns the offset of the slot of piece number index of this operation.
func (w *writer) slotOfPiece(i incoming, index plugin.Reg) plugin.Reg {
	return w.slot(w.entry(w.slotsFrom(i.class, 0), i.from, w.channelStride()), w.Add(i.before, index))
}

// await waits for piece number index of this operation and says where it is.
func (w *writer) await(i incoming, index plugin.Reg) plugin.RefID {
	slot := w.slotOfPiece(i, index)
	w.Wait(w.own(slot), w.Add(w.Add(i.before, index), w.Const(1)), i.from.reg)
	return w.own(w.Add(slot, w.Const(line)))
}

// never is more pieces than a channel ever carries.
const never = 1 << 60

// checkLength stops a reader whose message is not n bytes long: it waits for what
// does not come, and leaves the piece that it awaited where it is. The host, which
// knows both lengths, finds out why the call stops. Where the ends differ it is the
// first piece that tells, as neither has come out of step before.
func (w *writer) checkLength(i incoming, index, n plugin.Reg) {
	slot := w.slotOfPiece(i, index)
	w.If(w.Ne(w.Load(w.own(w.Add(slot, w.Const(behind)))), n), func() {
		w.Wait(w.own(slot), w.Const(never), i.from.reg)
	})
}

// consume gives the slot of a piece that was read back to the writer.
func (w *writer) consume(i incoming, index plugin.Reg) {
	consumed := w.Add(w.Add(i.before, index), w.Const(1))
	w.otherwise(w.Mod(consumed, w.Const(half)), func() {
		// Releases the reads of the slots before: the writer, which acquires
		// this value, overwrites them after.
		credit := w.of(i.from, w.Const(w.creditLine(i.class)+int64(w.me)*line))
		w.Signal(credit, consumed, i.from.reg)
	})
}

// send writes a message of n bytes from the place that from names for each
// offset.
func (w *writer) send(c class, to rank, n plugin.Reg, from func(offset plugin.Reg) plugin.RefID) {
	o := w.outgoing(c, to)
	pieces := w.rounds(n)
	w.Loop(pieces, func(i plugin.Reg) {
		capacity := w.Const(w.capacity)
		offset := w.Mul(i, capacity)
		if w.pairwise {
			w.put(o, i, from(offset), w.piece(n, offset, capacity), n)
			return
		}
		w.put(o, i, from(offset), w.piece(n, offset, capacity))
	})
	w.sent(o, pieces)
}

// receive reads a message of n bytes to the place that to names for each
// offset.
func (w *writer) receive(c class, source rank, n plugin.Reg, to func(offset plugin.Reg) plugin.RefID) {
	in := w.incoming(c, source)
	pieces := w.rounds(n)
	w.Loop(pieces, func(i plugin.Reg) {
		capacity := w.Const(w.capacity)
		offset := w.Mul(i, capacity)
		at := w.await(in, i)
		if w.pairwise {
			w.checkLength(in, i, n)
		}
		w.Copy(to(offset), at, w.piece(n, offset, capacity))
		w.consume(in, i)
	})
	w.received(in, pieces)
}
