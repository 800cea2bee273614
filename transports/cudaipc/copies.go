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
	min        int64
	latency    float64 // microseconds
	bandwidth  float64 // bytes per microsecond, of plugin.Request.Bytes
	worlds     worlds
}{
	{plugin.AllReduce, 16 * mib, 47.9, 234800, more},
	{plugin.AllReduce, 16 * mib, 36.8, 362200, two},
	{plugin.AllGather, 0, 26.5, 130100, more},
	{plugin.AllGather, 0, 16.8, 390900, two},
	{plugin.AllToAll, 0, 26.9, 129800, more},
	{plugin.AllToAll, 0, 19.5, 391900, two},
	{plugin.Broadcast, 0, 21.6, 392200, two},
	{plugin.Scatter, 0, 26.5, 130100, more},
	{plugin.Scatter, 0, 21.6, 392200, two},
}

// copied is the algorithm as Supports offers it, if it does a request.
func copied(r plugin.Request) (plugin.Algorithm, bool) {
	for _, c := range copies {
		if c.collective == r.Collective && r.Symmetric && r.World > 1 && c.worlds.has(r.World) {
			return plugin.Algorithm{Name: copyName, MinBytes: c.min, Latency: c.latency, Bandwidth: c.bandwidth}, true
		}
	}
	return plugin.Algorithm{}, false
}

// copyPlan is the plan of an operation by copies: a kernel that ends when every
// rank has begun, and compares where their receive memory lies; the copies, one
// after another; a barrier, behind which every rank's copies have arrived
// everywhere. Beside them a kernel copies what a rank sends to itself, which peers
// need not wait for.
//
// The copies begin with the next rank, so that in step every GPU receives from
// one: several at once reach little more than half the rate.
func copyPlan(r plugin.Request) (*plugin.Plan, error) {
	w := writer{plugin.NewBuilder(r, copyName), r}
	root, me := w.Slot(plugin.SlotRoot), w.Const(int64(r.Rank))
	// sends runs the body where this rank sends.
	sends := func(body func()) {
		switch r.Collective {
		case plugin.Broadcast, plugin.Scatter:
			w.If(w.Eq(root, me), body)
		default:
			body()
		}
	}
	w.Track(func() {
		args := w.arguments(w.Slot(plugin.SlotRecvBytes))
		args[argSend] = plugin.Value(w.Slot(plugin.SlotWindow), 8) // the range's number
		args[argRecv] = plugin.Value(w.Slot(plugin.SlotOffset), 8) // and the offset there
		w.LaunchDependent("symmetric", "shunt_symmetric_begin", w.Const(1), w.Const(32), args...)
		if r.Collective == plugin.AllReduce {
			w.reduceShardAndCopy()
		} else {
			sends(func() {
				for k := 1; k < r.World; k++ {
					p := (r.Rank + k) % r.World
					from, to := w.between(p)
					w.Copy(w.PeerRecv(w.Const(int64(p)), to), w.Send(from), w.Slot(plugin.SlotBytes))
				}
			})
		}
		// Not a dependent launch, which is for kernels behind kernels.
		w.Launch("barrier", "shunt_barrier", w.Const(1), w.Const(32), w.arguments(w.Slot(plugin.SlotBytes))...)
	})
	if r.Collective == plugin.AllReduce {
		return w.Plan()
	}
	w.Track(func() { sends(w.copyOwn) })
	return w.Plan()
}

// between are the offsets of what this rank sends to a rank: in the send memory,
// and in that rank's receive memory.
func (w writer) between(p int) (from, to plugin.Reg) {
	switch zero := w.Const(0); w.r.Collective {
	case plugin.AllGather:
		return zero, w.RecvDispl(w.r.Rank)
	case plugin.AllToAll:
		return w.SendDispl(p), w.RecvDispl(w.r.Rank)
	case plugin.Scatter:
		return w.SendDispl(p), zero
	default:
		return zero, zero
	}
}

// copyOwn copies what this rank sends to itself, unless it is there.
func (w writer) copyOwn() {
	bytes := w.Slot(plugin.SlotBytes)
	from, to := w.between(w.r.Rank)
	away := w.Ne(w.Address(w.Send(from)), w.Address(w.Recv(to)))
	w.If(w.Mul(away, w.Lt(w.Const(0), bytes)), func() {
		const blocks = 32 // enough for the memory's rate
		args := w.arguments(bytes)
		args[argSend], args[argRecv] = plugin.Address(w.Send(from)), plugin.Address(w.Recv(to))
		w.Launch("one_sided", "shunt_copy", w.clamp(w.CeilDiv(bytes, w.Const(16*maxThreads)), 1, blocks), w.Const(maxThreads), args...)
	})
}

// reduceShardAndCopy is an all_reduce: a reduce_scatter whose results the copy
// engines give to all. What does not make shards of whole words goes apart, first.
//
// In place too: a rank copies its shard to a peer after it has combined it, so it
// has all that the peer has to say to that shard, and nobody else reads it there.
func (w writer) reduceShardAndCopy() {
	world := int64(w.r.World)
	bytes, zero := w.Slot(plugin.SlotBytes), w.Const(0)
	shard := w.Mul(w.Div(bytes, w.Const(16*world)), w.Const(16))
	whole := w.Mul(shard, w.Const(world))
	rest := w.Sub(bytes, whole)
	w.If(w.Lt(zero, rest), func() {
		a, _ := find(plugin.AllReduce, "one_shot_ll", w.r.World)
		args := w.arguments(rest)
		args[argSend], args[argRecv] = plugin.Address(w.Send(whole)), plugin.Address(w.Recv(whole))
		blocks, threads := w.size(packets, rest)
		w.launch(a, blocks, threads, args)
	})
	a, _ := find(plugin.ReduceScatter, "staged", w.r.World)
	own := w.Mul(shard, w.Const(int64(w.r.Rank)))
	args := w.arguments(shard)
	args[argRecv] = plugin.Address(w.Recv(own))
	w.launch(a, w.Const(maxBlocks), w.Const(maxThreads), args)
	for k := 1; k < w.r.World; k++ {
		p := int64((w.r.Rank + k) % w.r.World)
		w.Copy(w.PeerRecv(w.Const(p), own), w.Recv(own), shard)
	}
}
