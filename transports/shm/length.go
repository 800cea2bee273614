package shm

import "github.com/shunt-ccl/shunt/plugin"

// Both ends of a message choose ring or offer, slots and number of pieces by its length, and if they were given
// different ones a reader would take for its message whatever comes there. So messages of a pair with lengths carry
// theirs, and a reader that finds another one stops before it has changed anything: it waits for what never comes. The
// host, which knows what both ends were given, finds out why. Every piece tells the length of the whole message: where
// the two differ it is the first that the reader looks at, as neither end has come out of step before.
//
// In small slots the length is in the semaphore, below the number of the message,
// so that it costs the writer nothing and the reader no other line; elsewhere it is
// a word of the semaphore's line.

const (
	lengthRoom = 2 * smallBytes // of a semaphore: more than any length in a small slot
	never      = 1 << 62        // beyond all that a semaphore counts
)

// packed reports whether the semaphores of a ring hold the length.
func (p pair) packed(r ring) bool { return p.lengths && r.base == p.small.base }

// arrival returns the value of a slot's semaphore with the piece before piece next, of a
// message of n bytes. It stores the word beside the semaphore.
func (w *writer) arrival(p pair, r ring, slot, next, n plugin.Reg) plugin.Reg {
	switch {
	case p.packed(r):
		return w.Add(w.Mul(next, w.Const(lengthRoom)), n)
	case p.lengths:
		w.Store(w.own(w.Add(slot, w.Const(behind))), n)
	}
	return next
}

// arrive waits for the piece before piece next, of a message of n bytes, in a slot of
// source.
func (w *writer) arrive(p pair, r ring, source rank, slot, next, n plugin.Reg) {
	semaphore := w.of(source, slot)
	switch {
	case p.packed(r):
		w.Wait(semaphore, w.Mul(next, w.Const(lengthRoom)), source.reg)
		w.expect(semaphore, func() plugin.Reg { return w.Mod(w.Load(semaphore), w.Const(lengthRoom)) }, n, source)
	case p.lengths:
		w.Wait(semaphore, next, source.reg)
		w.expect(semaphore, func() plugin.Reg { return w.Load(w.of(source, w.Add(slot, w.Const(behind)))) }, n, source)
	default:
		w.Wait(semaphore, next, source.reg)
	}
}

// expect stops a reader whose message is not n bytes long, at the semaphore that
// announced it. length makes the register with the sender's length, only if it may
// differ.
func (w *writer) expect(semaphore plugin.RefID, length func() plugin.Reg, n plugin.Reg, source rank) {
	if !w.pairwise {
		return
	}
	w.If(w.Ne(length(), n), func() { w.Wait(semaphore, w.Const(never), source.reg) })
}
