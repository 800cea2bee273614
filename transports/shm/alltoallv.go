package shm

// allToAllVDirect: a message for each peer, all at the same time. What a pair does follows from the pair's bytes alone,
// which both ends know; nothing depends on the total of a rank. It does not work
// in place.
func allToAllVDirect(w *writer) {
	for _, p := range w.peers() {
		w.Track(func() {
			w.give(w.personal, p, w.SendCount(p.known), w.from(w.SendDispl(p.known)))
		})
	}
	for _, p := range w.peers() {
		w.Track(func() {
			w.take(w.personal, p, w.RecvCount(p.known), w.to(w.RecvDispl(p.known)))
		})
	}
	w.Track(w.CopyOwn) // last: for when the others have to wait
}
