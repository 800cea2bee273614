package shm

// barrierOneShot: every rank raises its semaphore and waits for all others.
func barrierOneShot(w *writer) {
	w.Track(func() {
		w.Barrier(w.own(w.Const(w.barrierSemaphore)), w.counter(w.barrierCounter))
	})
}
