package shm

import "github.com/shunt-ccl/shunt/plugin"

// gatherDirect: every other rank sends its data to the root, which receives from all
// at the same time. A message's protocol follows from its own length, so it
// serves gather and gather_v alike.
func gatherDirect(w *writer) {
	root, bytes := w.root(), w.Slot(plugin.SlotBytes)
	for _, p := range w.peers() {
		w.Track(func() {
			w.If(w.Eq(root.reg, w.Const(int64(w.me))), func() {
				w.take(w.personal, p, w.RecvCount(p.known), w.to(w.RecvDispl(p.known)))
			})
		})
	}
	// The root's own block comes last: for when the others have to wait.
	w.Track(func() {
		isRoot := w.Eq(root.reg, w.Const(int64(w.me)))
		w.If(isRoot, func() { w.Copy(w.Recv(w.RecvDispl(w.me)), w.Send(w.Const(0)), bytes) })
		w.otherwise(isRoot, func() { w.give(w.personal, root, bytes, w.Send) })
	})
}
