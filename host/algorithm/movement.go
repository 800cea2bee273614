package algorithm

import "github.com/shunt-ccl/shunt/plugin"

// sendDirect and recvDirect are the two ends of a message.
func sendDirect(w *writer) {
	w.Track(func() { w.send(messages, w.root(), w.Slot(plugin.SlotBytes), w.Send) })
}

func recvDirect(w *writer) {
	w.Track(func() { w.receive(messages, w.root(), w.Slot(plugin.SlotBytes), w.Recv) })
}

// broadcastDirect: the root sends its data to all.
func broadcastDirect(w *writer) {
	bytes := w.Slot(plugin.SlotBytes)
	for _, p := range w.peers() {
		w.Track(func() {
			w.If(w.isRoot(), func() { w.send(personal, p, bytes, w.Send) })
		})
	}
	w.Track(func() {
		isRoot := w.isRoot()
		w.If(isRoot, func() { w.Copy(w.Recv(w.Const(0)), w.Send(w.Const(0)), bytes) })
		w.otherwise(isRoot, func() { w.receive(personal, w.root(), bytes, w.Recv) })
	})
}

// receiveBlocks receives each peer's block, from all at the same time, if
// wanted (made in each track).
func (w *writer) receiveBlocks(wanted func() plugin.Reg) {
	for _, p := range w.peers() {
		w.Track(func() {
			w.If(wanted(), func() {
				w.receive(personal, p, w.RecvCount(p.known), w.to(w.RecvDispl(p.known)))
			})
		})
	}
}

// sendBlocks sends each peer its block, to all at the same time, if wanted.
func (w *writer) sendBlocks(wanted func() plugin.Reg) {
	for _, p := range w.peers() {
		w.Track(func() {
			w.If(wanted(), func() {
				w.send(personal, p, w.SendCount(p.known), w.from(w.SendDispl(p.known)))
			})
		})
	}
}

func (w *writer) always() plugin.Reg { return w.Const(1) }

// allGatherDirect: every rank sends its data to all. Lengths are known on all
// ranks, so it serves all_gather and all_gather_v alike.
func allGatherDirect(w *writer) {
	bytes := w.Slot(plugin.SlotBytes)
	w.sendToAll(bytes, w.Send)
	w.Track(func() { w.Copy(w.Recv(w.RecvDispl(w.me)), w.Send(w.Const(0)), bytes) })
	w.receiveBlocks(w.always)
}

// allToAllDirect: every rank sends each rank its block. What a pair does follows
// from that pair's bytes alone. It does not work in place.
func allToAllDirect(w *writer) {
	w.sendBlocks(w.always)
	w.Track(w.CopyOwn)
	w.receiveBlocks(w.always)
}

// gatherDirect: every rank sends its data to the root.
func gatherDirect(w *writer) {
	bytes := w.Slot(plugin.SlotBytes)
	w.Track(func() {
		isRoot := w.isRoot()
		w.If(isRoot, func() { w.Copy(w.Recv(w.RecvDispl(w.me)), w.Send(w.Const(0)), bytes) })
		w.otherwise(isRoot, func() { w.send(personal, w.root(), bytes, w.Send) })
	})
	w.receiveBlocks(w.isRoot)
}

// scatterDirect: the root sends each rank its block.
func scatterDirect(w *writer) {
	bytes := w.Slot(plugin.SlotBytes)
	w.sendBlocks(w.isRoot)
	w.Track(func() {
		isRoot := w.isRoot()
		w.If(isRoot, func() { w.Copy(w.Recv(w.Const(0)), w.Send(w.SendDispl(w.me)), bytes) })
		w.otherwise(isRoot, func() { w.receive(personal, w.root(), bytes, w.Recv) })
	})
}

// barrierDirect: a message without bytes to all, and one from all.
func barrierDirect(w *writer) {
	w.sendToAll(w.Const(0), w.Send)
	w.Track(func() {
		for _, from := range w.allIncoming(personal) {
			w.await(from, w.Const(0))
			w.consume(from, w.Const(0))
			w.received(from, w.Const(1))
		}
	})
}
