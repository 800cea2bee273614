package cudaipc

import "github.com/shunt-ccl/shunt/plugin"

// windowName is the algorithm of one-sided operations.
const windowName = "window"

// oneSided reports whether a collective works on a window.
func oneSided(c plugin.Collective) bool {
	switch c {
	case plugin.Put, plugin.Get, plugin.Signal, plugin.Wait:
		return true
	}
	return false
}

// shortPut is up to how many bytes a kernel stores at the peer sooner than a
// copy engine begins.
const shortPut = 256 * kib

// windowPlan returns the plan of a one-sided operation: bytes are copied by the copy
// engines, those of short puts by a kernel; signals are tiny kernels.
func (w writer) windowPlan() (*plugin.Plan, error) {
	r := w.r
	w.Track(func() {
		zero, bytes := w.Const(0), w.Slot(plugin.SlotBytes)
		window, peer, me := w.Slot(plugin.SlotWindow), w.Slot(plugin.SlotRoot), w.Const(int64(r.Rank))
		// ofPeer is the word that stands at an offset for rank 0, for the peer.
		ofPeer := func(offset int64) plugin.RefID {
			return w.Region(window, me, w.Add(w.Const(offset), w.Mul(peer, w.Const(plugin.WindowSemaphore(1)))))
		}
		there := func() plugin.RefID {
			return w.Region(window, peer, w.Add(w.Const(plugin.WindowHeader(r.World)), w.Slot(plugin.SlotOffset)))
		}
		switch r.Collective {
		case plugin.Put:
			short := w.Le(bytes, w.Const(shortPut))
			w.If(w.Mul(short, w.Lt(zero, bytes)), func() {
				args := w.arguments(bytes)
				args[argRecv] = plugin.Address(there())
				threads := w.CeilDiv(bytes, w.Const(16)) // each copies 16 bytes
				w.LaunchDependent("one_sided", "shunt_copy", w.clamp(w.CeilDiv(threads, w.Const(256)), 1, w.most), w.Const(256),
					args...)
			})
			w.If(w.Eq(short, zero), func() { w.Copy(there(), w.Send(zero), bytes) })
		case plugin.Get:
			w.Copy(w.Recv(zero), there(), bytes)
		case plugin.Signal:
			semaphore := w.Region(window, peer, w.Const(plugin.WindowSemaphore(r.Rank)))
			w.LaunchDependent("one_sided", "shunt_window_signal", w.Const(1), w.Const(32),
				w.words(ofPeer(plugin.WindowRaised(0)), semaphore, bytes)...)
		case plugin.Wait:
			w.LaunchDependent("one_sided", "shunt_window_wait", w.Const(1), w.Const(32),
				w.words(ofPeer(plugin.WindowAwaited(0)), ofPeer(plugin.WindowSemaphore(0)), w.Slot(plugin.SlotOffset))...)
		}
	})
	return w.Plan()
}

// words returns the arguments of a kernel that works on a counter and a semaphore.
func (w writer) words(counter, semaphore plugin.RefID, times plugin.Reg) []plugin.KernelArg {
	args := w.arguments(times)
	args[argSend], args[argRecv] = plugin.Address(counter), plugin.Address(semaphore)
	return args
}
