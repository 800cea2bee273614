package cudatest

import "sync"

// frees says how Free treats other calls. The driver's lock guards it.
type frees struct {
	wait    bool // for the streams
	waiting bool
	ended   sync.Cond
}

// FreesWait makes Free, from now on, what cuMemFree is at its worst: it waits for everything in the driver's streams,
// and no other call of the driver begins before it has returned.
func (d *Driver) FreesWait() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frees.wait = true
}

// Freeing reports whether a Free waits.
func (d *Driver) Freeing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.frees.waiting
}

// waitToFree waits for the streams if FreesWait was called. The caller holds the lock.
func (d *Driver) waitToFree() {
	if !d.frees.wait {
		return
	}
	d.frees.waiting = true
	d.drainAll()
	d.frees.waiting = false
	d.frees.ended.Broadcast()
}
