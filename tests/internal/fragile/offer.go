package fragile

import "github.com/shunt-ccl/shunt/plugin"

// An offer is the address of a rank's send memory, behind a semaphore. A rank that has copied the bytes from there
// signals it, and an operation ends when all have: the memory is the caller's again then, and the next offer may take
// the place of this one.

func allGatherOffers(w *writer) {
	semaphore, taken := w.Const(offerSemaphore), w.Const(takenSemaphore)
	address := w.Const(offerSemaphore + 2*word)
	w.Track(func() {
		epoch := w.next(w.Load(w.own(semaphore)))
		store := func() { w.Store(w.own(address), w.Address(w.Send(w.Const(0)))) }
		offer := func() {
			if w.is("address_last") {
				w.SignalAll(w.own(semaphore), epoch)
				store()
				return
			}
			store()
			w.SignalAll(w.own(semaphore), epoch)
		}
		if !w.is("fetch_first") {
			offer()
		}
		for _, p := range w.peers() {
			w.Wait(w.at(w.rank(p), semaphore), epoch, w.rank(p))
			from := w.Peer(w.offered(p, address), w.rank(p), w.Const(0))
			w.Copy(w.Recv(w.RecvDispl(p)), from, w.contribution(p))
		}
		if w.is("fetch_first") {
			offer()
		}
		w.SignalAll(w.own(taken), epoch) // releases the reads
		if !w.is("offer_withdrawn") {
			for _, p := range w.peers() {
				w.Wait(w.at(w.rank(p), taken), epoch, w.rank(p))
			}
		}
		w.Copy(w.Recv(w.RecvDispl(w.me)), w.Send(w.Const(0)), w.contribution(w.me))
	})
}

// offered returns the address that a peer has offered.
func (w *writer) offered(p int, address plugin.Reg) plugin.Reg {
	now := w.Load(w.at(w.rank(p), address))
	if !w.is("stale_address") {
		return now
	}
	kept := w.own(w.Const(lastAddress + int64(p)*word))
	first := w.Load(kept)
	first = w.Select(first, first, now)
	w.Store(kept, first)
	return first
}
