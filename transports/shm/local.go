package shm

import "github.com/shunt-ccl/shunt/plugin"

// local serves a world of one: a copy, rounded as a contribution would be.
// The sum, product, minimum, maximum and average of one rank are its data.
func local(w *writer) {
	zero, bytes := w.Const(0), w.Slot(plugin.SlotBytes)
	w.Track(func() {
		switch w.collective {
		case plugin.AllReduce, plugin.Reduce, plugin.Broadcast:
			w.Copy(w.Recv(zero), w.SendScaled(zero), bytes)
		case plugin.AllGather, plugin.AllGatherV, plugin.Gather, plugin.GatherV:
			w.Copy(w.Recv(w.RecvDispl(0)), w.Send(zero), bytes)
		case plugin.ReduceScatter, plugin.ReduceScatterV, plugin.Scatter, plugin.ScatterV:
			w.Copy(w.Recv(zero), w.SendScaled(w.SendDispl(0)), bytes)
		case plugin.AllToAll, plugin.AllToAllV:
			w.copyOwn()
		}
	})
}
