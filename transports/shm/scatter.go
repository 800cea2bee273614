package shm

import "github.com/shunt-ccl/shunt/plugin"

// scatterDirect: the root sends every rank its block, to all at the same time.
// A message's protocol follows from its own length, so it serves scatter and
// scatter_v alike.
func scatterDirect(w *writer) {
	root, bytes := w.root(), w.Slot(plugin.SlotBytes)
	for _, p := range w.peers() {
		w.Track(func() {
			w.If(w.Eq(root.reg, w.Const(int64(w.me))), func() {
				w.give(w.personal, p, w.SendCount(p.known), w.from(w.SendDispl(p.known)))
			})
		})
	}
	w.Track(func() {
		isRoot := w.Eq(root.reg, w.Const(int64(w.me)))
		w.If(isRoot, func() { w.Copy(w.Recv(w.Const(0)), w.Send(w.SendDispl(w.me)), bytes) })
		w.otherwise(isRoot, func() { w.take(w.personal, root, bytes, w.Recv) })
	})
}
