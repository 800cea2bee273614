package algorithm

import "github.com/shunt-ccl/shunt/plugin"

// Windows are laid out as plugin.WindowHeader and its neighbours say. These are
// the offsets of a rank's words behind each other rank's place in the header.
var (
	windowPerRank = plugin.WindowSemaphore(1)
	raisedWord    = plugin.WindowRaised(0)
	awaitedWord   = plugin.WindowAwaited(0)
)

// WindowBytes returns the size in bytes of a window's region in a world of the given
// size that has room for user bytes, and the offset of the user's bytes in it,
// a multiple of a page.
func WindowBytes(world int, user int64) (total, userOffset int64) {
	const page = 4096
	header := plugin.WindowHeader(world)
	return header + (user+page-1)/page*page, header
}

// window returns a place in r's part of the window.
func (w *writer) window(r rank, offset plugin.Reg) plugin.RefID {
	return w.Region(w.Slot(plugin.SlotWindow), r.reg, offset)
}

// user returns a place in r's user bytes.
func (w *writer) user(r rank) plugin.RefID {
	_, header := WindowBytes(w.size, 0)
	return w.window(r, w.Add(w.Const(header), w.Slot(plugin.SlotOffset)))
}

// ofPeer returns the word of the window's header, in this rank's part, that stands
// offset bytes behind the start of the peer's lines.
func (w *writer) ofPeer(offset int64) plugin.RefID {
	return w.window(w.peer(w.me), w.entry(offset, w.root(), windowPerRank))
}

// putDirect writes into the peer's window. It is visible there after a wait for a
// signal that follows it.
func putDirect(w *writer) {
	w.Track(func() { w.Copy(w.user(w.root()), w.Send(w.Const(0)), w.Slot(plugin.SlotBytes)) })
}

// getDirect reads the peer's window; it is the one plan that loads from a peer.
func getDirect(w *writer) {
	w.Track(func() { w.Copy(w.Recv(w.Const(0)), w.user(w.root()), w.Slot(plugin.SlotBytes)) })
}

// signalDirect raises this rank's semaphore at the peer by one. The count is a
// word of the window, so a signal that is replayed raises it again.
func signalDirect(w *writer) {
	w.Track(func() {
		counter := w.ofPeer(raisedWord)
		raised := w.Add(w.Load(counter), w.Const(1))
		w.Store(counter, raised)
		// Releases the puts before it to the peer's wait.
		w.Signal(w.window(w.root(), w.Const(plugin.WindowSemaphore(w.me))), raised, w.root().reg)
	})
}

// waitDirect waits until the peer has signalled as many times as the offset
// slot says, beyond those that were waited for before.
func waitDirect(w *writer) {
	w.Track(func() {
		counter := w.ofPeer(awaitedWord)
		awaited := w.Add(w.Load(counter), w.Slot(plugin.SlotOffset))
		w.Wait(w.ofPeer(0), awaited, w.root().reg)
		w.Store(counter, awaited)
	})
}
