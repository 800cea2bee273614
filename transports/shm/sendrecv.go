package shm

import "github.com/shunt-ccl/shunt/plugin"

// sendDirect and recvDirect: messages of a pair go through the rings of that
// pair in program order; a small one is there when send returns. With
// singleCopy a long one is offered, and send returns when it was taken.
func sendDirect(w *writer) {
	w.Track(func() { w.give(w.messages, w.root(), w.Slot(plugin.SlotBytes), w.Send) })
}

func recvDirect(w *writer) {
	w.Track(func() { w.take(w.messages, w.root(), w.Slot(plugin.SlotBytes), w.Recv) })
}

// from and to name places behind a displacement in the caller's memory.
func (w *writer) from(displ plugin.Reg) func(plugin.Reg) plugin.RefID {
	return func(offset plugin.Reg) plugin.RefID { return w.Send(w.Add(displ, offset)) }
}

func (w *writer) to(displ plugin.Reg) func(plugin.Reg) plugin.RefID {
	return func(offset plugin.Reg) plugin.RefID { return w.Recv(w.Add(displ, offset)) }
}
