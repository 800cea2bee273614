package shm

import "github.com/shunt-ccl/shunt/plugin"

// round is one round of an exchange.
type round struct {
	index plugin.Reg // from 0 within the operation
	data  plugin.Reg // offset of the data in every rank's slot
}

// exchange runs rounds in which every rank publishes one slot and then reads those of all ranks: publish writes this
// rank's slot, read reads the others'. The number of rounds must be the same on all ranks.
//
// Two slots, taken in turn, suffice. This rank writes a slot for round n+2 after every peer has signaled round n+1, and
// a peer signals round n+1 after it has read everything of round n. That holds because no rank leaves out a signal or a
// wait, whatever there is to move, and because all plans of this class run as many rounds on every rank.
func (w *writer) exchange(rounds pieces, publish, read func(round)) {
	counter := w.counter(w.layout.exchangeCounter)
	s := w.layout.exchange
	before := w.Load(counter)
	rounds.each(func(i plugin.Reg) {
		number := w.Add(before, i)
		slot := w.slotOf(s, w.Const(s.base), number)
		epoch := w.next(number)
		r := round{index: i, data: w.Add(slot, w.Const(s.head))}
		publish(r)
		// The semaphore releases the data that was copied into the slot; a
		// peer's wait acquires it.
		w.SignalAll(w.own(slot), epoch)
		for _, p := range w.peers() {
			w.Wait(w.of(p, slot), epoch, p.reg)
		}
		read(r)
	})
	w.Store(counter, w.Add(before, rounds.count))
}
