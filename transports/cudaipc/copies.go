package cudaipc

import "github.com/shunt-ccl/shunt/plugin"

// copyName is the algorithm of symmetric requests: the copy engines write
// straight into the receive memory of peers, whose addresses the host knows.
const copyName = "copy"

// copies are the collectives that it does. Costs are what 4 H200 and 2 H200
// measured, in graphs: a copy begins some 20 µs late, and then has packets longer
// than those of kernels. docs/decisions/0009-symmetric.md has the measurements.
var copies = []struct {
	collective plugin.Collective
	latency    float64 // microseconds
	bandwidth  float64 // bytes per microsecond, of plugin.Request.Bytes
	worlds     worlds
}{
	{plugin.AllGather, 26.5, 130100, more},
	{plugin.AllGather, 16.8, 390900, two},
	{plugin.AllToAll, 26.9, 129800, more},
	{plugin.AllToAll, 19.5, 391900, two},
	{plugin.Broadcast, 21.6, 392200, two},
	{plugin.Scatter, 26.5, 130100, more},
	{plugin.Scatter, 21.6, 392200, two},
}

// copied is the algorithm as Supports offers it, if it does a request.
func copied(r plugin.Request) (plugin.Algorithm, bool) {
	for _, c := range copies {
		if c.collective == r.Collective && r.Symmetric && r.World > 1 && c.worlds.has(r.World) {
			return plugin.Algorithm{Name: copyName, Latency: c.latency, Bandwidth: c.bandwidth}, true
		}
	}
	return plugin.Algorithm{}, false
}

// copyPlan is the plan of an operation by copies: a kernel that ends when every
// rank has begun, and compares where their receive memory lies; the copies, one
// after another; a barrier, behind which every rank's copies have arrived
// everywhere.
//
// The copies begin with the next rank, so that in step every GPU receives from
// one: several at once reach little more than half the rate. What a rank sends to
// itself comes last; peers do not wait for it.
func copyPlan(r plugin.Request) (*plugin.Plan, error) {
	w := writer{plugin.NewBuilder(r, copyName), r}
	w.Track(func() {
		args := w.arguments(w.Slot(plugin.SlotRecvBytes))
		args[argSend] = plugin.Value(w.Slot(plugin.SlotWindow), 8) // the range's number
		args[argRecv] = plugin.Value(w.Slot(plugin.SlotOffset), 8) // and the offset there
		w.LaunchDependent("symmetric", "shunt_symmetric_begin", w.Const(1), w.Const(32), args...)
		root, me := w.Slot(plugin.SlotRoot), w.Const(int64(r.Rank))
		switch r.Collective {
		case plugin.Broadcast, plugin.Scatter:
			w.If(w.Eq(root, me), w.copyToAll)
		default:
			w.copyToAll()
		}
		// Not a dependent launch, which is for kernels behind kernels.
		w.Launch("barrier", "shunt_barrier", w.Const(1), w.Const(32), w.arguments(w.Slot(plugin.SlotBytes))...)
	})
	return w.Plan()
}

// copyToAll copies what this rank sends into the receive memory of every rank.
func (w writer) copyToAll() {
	zero, bytes := w.Const(0), w.Slot(plugin.SlotBytes)
	for k := 1; k <= w.r.World; k++ {
		p := (w.r.Rank + k) % w.r.World
		from, to := zero, zero
		switch w.r.Collective {
		case plugin.AllGather:
			to = w.RecvDispl(w.r.Rank)
		case plugin.AllToAll:
			from, to = w.SendDispl(p), w.RecvDispl(w.r.Rank)
		case plugin.Scatter:
			from = w.SendDispl(p)
		}
		there := w.Recv(to) // in place this is a copy of nothing
		if p != w.r.Rank {
			there = w.PeerRecv(w.Const(int64(p)), to)
		}
		w.Copy(there, w.Send(from), bytes)
	}
}
