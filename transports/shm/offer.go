package shm

import "github.com/shunt-ccl/shunt/plugin"

// An offer moves bytes in one copy, where ranks can read each other's memory:
// the writer publishes where its bytes are, and the reader copies them from
// there. Behind the offer's semaphore, and its mark, stands the address.
//
// There is no scratch to run out of, and the reader's reply is the credit: a writer
// ends its operation only when every reader has taken the bytes, because the memory
// is the user's again then. So one line suffices for an offer, as no address is
// overwritten before its readers are done with it, and the semaphores are their own
// counters: the writer raises its own by one with each offer, the reader replies with
// the same number in its own.

// singleBytes returns the length above which a message between two ranks is offered
// rather than sent through a ring. Both ends know it, so they agree without a
// word. A writer that offers has to wait for its reader, which costs little
// where both run and much where they take turns; of more ranks, more do.
func (w *writer) singleBytes() plugin.Reg { return w.Const(4 << 10 * int64(min(w.world, 8))) }

// offers is a protocol class of offers.
type offers struct {
	// lines of the writer, a semaphore, an address and perhaps a length each: one for each reader, or one for all
	offered int64
	taken   int64 // semaphores of the reader: a line for each writer, or one for all
}

// singleCopy makes a generator move long messages by offers.
func singleCopy(write generator) generator {
	return func(w *writer) {
		w.single = true
		write(w)
	}
}

// give moves n bytes to a peer, from the place that from names for each offset,
// as take expects them.
func (w *writer) give(p pair, to rank, n plugin.Reg, from func(offset plugin.Reg) plugin.RefID) {
	w.byCopies(to, n,
		func() {
			at := w.entry(p.offers.offered, to, line)
			epoch := w.next(w.Load(w.own(at)))
			w.publish(at, from(w.Const(0)))
			if p.lengths {
				w.Store(w.own(w.Add(at, w.Const(behind+word))), n)
			}
			// Releases address and length, and the user's bytes, to the peer's wait.
			w.Signal(w.own(at), epoch, to.reg)
			w.Wait(w.of(to, w.Const(p.offers.taken+int64(w.me)*line)), epoch, to.reg)
		},
		func() { w.send(p, to, n, from) })
}

// take moves n bytes from a peer to the place that to names for each offset.
func (w *writer) take(p pair, source rank, n plugin.Reg, to func(offset plugin.Reg) plugin.RefID) {
	w.byCopies(source, n,
		func() {
			w.takeOffer(w.Const(p.offers.offered+int64(w.me)*line), p, source, n, to(w.Const(0)))
		},
		func() { w.receive(p, source, n, to) })
}

// byCopies writes single for a message of n bytes that is offered, and staged
// for one that goes through a ring. A message to itself does, so that a rank
// need not be in two places.
func (w *writer) byCopies(peer rank, n plugin.Reg, single, staged func()) {
	if !w.single {
		staged()
		return
	}
	long := w.Lt(w.singleBytes(), n)
	if peer.slot {
		long = w.Mul(long, w.Ne(peer.reg, w.Const(int64(w.me))))
	}
	w.If(long, single)
	w.otherwise(long, staged)
}

// publish stores where a place in this rank's memory is in the offer that
// stands at an offset, for the signal that follows to release.
func (w *writer) publish(at plugin.Reg, place plugin.RefID) {
	w.Store(w.own(w.Add(at, w.Const(behind))), w.Address(place))
}

// takeOffer copies n bytes of the offer at an offset of source's region, and replies to
// it.
func (w *writer) takeOffer(at plugin.Reg, p pair, source rank, n plugin.Reg, to plugin.RefID) {
	taken := w.own(w.entry(p.offers.taken, source, line))
	epoch := w.next(w.Load(taken))
	w.Wait(w.of(source, at), epoch, source.reg)
	if p.lengths {
		w.expect(w.of(source, at), func() plugin.Reg { return w.Load(w.of(source, w.Add(at, w.Const(behind+word)))) }, n,
			source)
	}
	w.Copy(to, w.offeredBy(source, at, w.Const(0)), n)
	// Releases the reads: the writer, which acquires this value, gives the
	// memory back to the user.
	w.Signal(taken, epoch, source.reg)
}

// offeredBy returns a place behind what source offers at an offset of its region.
// It comes after the wait for that offer.
func (w *writer) offeredBy(source rank, at, offset plugin.Reg) plugin.RefID {
	return w.Peer(w.Load(w.of(source, w.Add(at, w.Const(behind)))), source.reg, offset)
}

// mutual has every rank offer its send memory to all ranks; read copies from what each peer offers, which offered names
// for an offset. Every rank ends when all have read, so all ranks run as many of these and have the same epoch. What a
// rank has to do besides belongs in a track behind this one's: then it is done when this one first has to wait, for an
// offer or at the end.
func (w *writer) mutual(read func(p rank, offered func(offset plugin.Reg) plugin.RefID)) {
	at, taken := w.Const(w.layout.mutual.offered), w.own(w.Const(w.layout.mutual.taken))
	epoch := w.next(w.Load(w.own(at)))
	w.publish(at, w.Send(w.Const(0)))
	w.SignalAll(w.own(at), epoch)
	for _, p := range w.peers() {
		w.Wait(w.of(p, at), epoch, p.reg)
		read(p, func(offset plugin.Reg) plugin.RefID { return w.offeredBy(p, at, offset) })
	}
	w.SignalAll(taken, epoch) // releases the reads, as in takeOffer
	for _, p := range w.peers() {
		w.Wait(w.of(p, w.Const(w.layout.mutual.taken)), epoch, p.reg)
	}
}
