package cudaipc

import "github.com/shunt-ccl/shunt/plugin"

// The algorithms of symmetric requests: the copy engines write straight into the
// receive memory of peers, whose addresses the host knows. An all_reduce by copy
// is a kernel's reduce_scatter, whose results the engines give to all; where it is
// delivered, they carry the parts as well.
const (
	copyName      = "ce"
	deliveredName = "ce_reduce"
)

// copies lists the collectives that copy engines serve. Costs were measured on 4 and 2
// H200, in graphs: a copy begins some 20 µs late, and then has packets longer
// than those of kernels. docs/decisions/0009-symmetric.md has the measurements.
var copies = []struct {
	collective plugin.Collective
	name       string
	latency    float64 // microseconds
	bandwidth  float64 // bytes per microsecond, of plugin.Request.Bytes
	worlds     worlds
}{
	{plugin.AllReduce, copyName, 46, 241700, more},
	{plugin.AllReduce, copyName, 66, 356000, two},
	{plugin.AllReduce, deliveredName, 367, 265600, more},
	{plugin.AllReduce, deliveredName, 66, 392700, two},
	{plugin.AllGather, copyName, 36, 130000, more},
	{plugin.AllGather, copyName, 24.5, 391000, two},
	{plugin.AllToAll, copyName, 36.5, 130100, more},
	{plugin.AllToAll, copyName, 25, 391900, two},
	{plugin.Broadcast, copyName, 23.5, 396000, two},
	{plugin.Scatter, copyName, 26.4, 131300, more},
	{plugin.Scatter, copyName, 23.5, 396000, two},
}

// copied returns the algorithms by copies that serve a request, as Supports offers them.
func copied(r plugin.Request) (offered []plugin.Algorithm) {
	for _, c := range copies {
		if c.collective == r.Collective && r.Symmetric && r.World > 1 && c.worlds.has(r.World) {
			if r.World > 2 {
				c.bandwidth /= load(c.collective, c.name, r.World)
			}
			offered = append(offered, plugin.Algorithm{Name: c.name, Latency: c.latency, Bandwidth: c.bandwidth})
		}
	}
	return offered
}

// copyPlan returns the plan of an operation by copies: a kernel that ends when every
// rank has begun, and compares where their receive memory lies; the copies, one
// after another; a barrier, behind which every rank's copies have arrived
// everywhere. Beside them a kernel copies what a rank sends to itself, which peers
// need not wait for; or, in an all_reduce, combines what they have delivered.
//
// The copies begin with the next rank, so that in step every GPU receives from
// one: several at once reach little more than half the rate.
func (w writer) copyPlan(name string) (*plugin.Plan, error) {
	r := w.r
	delivers := name == deliveredName && r.Op != plugin.OpPremulSum // engines cannot scale what they copy
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
	if delivers {
		// First, for it must not stand behind what waits for it in a queue that
		// streams share (CUDA_DEVICE_MAX_CONNECTIONS).
		w.Track(w.combineDelivered)
	}
	w.Track(func() {
		args := w.arguments(w.Slot(plugin.SlotRecvBytes))
		args[argSend] = plugin.Value(w.Slot(plugin.SlotWindow), 8) // the range's number
		args[argRecv] = plugin.Value(w.Slot(plugin.SlotOffset), 8) // and the offset there
		check := w.LaunchDependent
		if delivers {
			check = w.Launch // on a stream of its own, behind no kernel
			// Whether it is in place, all ranks must agree on.
			inPlace := w.Eq(w.apart(), w.Const(0))
			args[argBytes] = plugin.Value(w.Add(w.Slot(plugin.SlotRecvBytes), w.Mul(inPlace, w.Const(plugin.InPlace))), 8)
		}
		check("symmetric", "shunt_symmetric_begin", w.Const(1), w.Const(32), args...)
		if r.Collective == plugin.AllReduce {
			w.allReduceByCopies(delivers)
		} else {
			sends(func() {
				for k := 1; k < r.World; k++ {
					p := w.distant(k)
					from, to := w.between(int(p))
					w.Copy(w.PeerRecv(w.Const(p), to), w.Send(from), w.Slot(plugin.SlotBytes))
				}
			})
		}
		// Not a dependent launch, which is for kernels behind kernels.
		w.Launch("barrier", "shunt_barrier", w.Const(1), w.Const(32), w.arguments(w.Slot(plugin.SlotBytes))...)
	})
	if r.Collective != plugin.AllReduce {
		w.Track(func() { sends(w.copyOwn) })
	}
	return w.Plan()
}

// between returns the offsets of what this rank sends to a rank: in the send memory,
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
		blocks := min(32, w.beside()) // 32 are enough for the memory's rate
		args := w.arguments(bytes)
		args[argSend], args[argRecv] = plugin.Address(w.Send(from)), plugin.Address(w.Recv(to))
		w.Launch("one_sided", "shunt_copy", w.clamp(w.CeilDiv(bytes, w.Const(16*maxThreads)), 1, blocks), w.Const(maxThreads),
			args...)
	})
}

// apart reports whether the operation is out of place.
func (w writer) apart() plugin.Reg {
	zero := w.Const(0)
	return w.Ne(w.Address(w.Send(zero)), w.Address(w.Recv(zero)))
}

// shard returns the length of a rank's shard of an all_reduce, in whole words.
func (w writer) shard() plugin.Reg {
	return w.Mul(w.Div(w.Slot(plugin.SlotBytes), w.Const(16*int64(w.r.World))), w.Const(16))
}

// allReduceByCopies writes an all_reduce whose results the copy engines carry, and, if it
// delivers and is out of place, whose parts too. What does not make shards of whole words
// goes apart, first.
func (w writer) allReduceByCopies(delivers bool) {
	zero, shard := w.Const(0), w.shard()
	whole := w.Mul(shard, w.Const(int64(w.r.World)))
	rest := w.Sub(w.Slot(plugin.SlotBytes), whole)
	w.If(w.Lt(zero, rest), func() {
		a, _ := find(plugin.AllReduce, "one_shot_ll", w.r.World)
		args := w.arguments(rest)
		args[argSend], args[argRecv] = plugin.Address(w.Send(whole)), plugin.Address(w.Recv(whole))
		blocks, threads := w.size(packets, rest)
		w.launch(a, blocks, threads, args)
	})
	own := w.Mul(shard, w.Const(int64(w.r.Rank)))
	w.If(w.Lt(zero, shard), func() {
		if !delivers {
			w.reduceAndCopy(own, shard)
			return
		}
		apart := w.apart()
		w.If(apart, func() { w.deliver(own, shard) })
		w.If(w.Eq(apart, zero), func() { w.reduceAndCopy(own, shard) })
	})
}

// reduceAndCopy writes a reduce_scatter by kernel, whose results the engines then give to all. In place: a rank copies
// its shard to a peer after it has combined it, so it has all that the peer contributes to that shard, and no other
// rank reads it there.
func (w writer) reduceAndCopy(own, shard plugin.Reg) {
	a, _ := find(plugin.ReduceScatter, "staged", w.r.World)
	args := w.arguments(shard)
	args[argRecv] = plugin.Address(w.Recv(own))
	w.met = true // in shunt_symmetric_begin
	w.run(a, shard, w.Send(w.Const(0)), args)
	for k := 1; k < w.r.World; k++ {
		w.Copy(w.PeerRecv(w.Const(w.distant(k)), own), w.Recv(own), shard)
	}
}

// deliver writes the copies that kernels/delivered.cuh describes. The last peer's part
// goes in two chunks with a signal after each, so that a kernel beside this track can
// begin to combine; the others' parts have arrived before.
func (w writer) deliver(own, shard plugin.Reg) {
	first := w.Mul(w.CeilDiv(shard, w.Const(32)), w.Const(16)) // half of it, in whole vectors, as first_delivery has it
	second := w.Sub(shard, first)
	turn := func(number int64) {
		args := w.arguments(shard)
		args[argRoot] = plugin.Value(w.Const(number), 4)
		w.Launch("symmetric", "shunt_symmetric_turn", w.Const(1), w.Const(32), args...)
	}
	for k := 1; k < w.r.World; k++ {
		peer := w.Const(w.distant(k))
		from := w.Mul(shard, peer)
		if k < w.r.World-1 {
			w.Copy(w.PeerRecv(peer, own), w.Send(from), shard)
			continue
		}
		w.Copy(w.PeerRecv(peer, own), w.Send(from), first)
		turn(0)
		w.Copy(w.PeerRecv(peer, w.Add(own, first)), w.Send(w.Add(from, first)), second)
	}
	turn(1)
	for k := 1; k < w.r.World; k++ {
		w.Copy(w.PeerRecv(w.Const(w.distant(k)), own), w.Recv(own), first)
	}
	turn(2)
	rest := w.Add(own, first)
	for k := 1; k < w.r.World; k++ {
		w.Copy(w.PeerRecv(w.Const(w.distant(k)), rest), w.Recv(rest), second)
	}
}

// distant returns the rank at a distance.
func (w writer) distant(k int) int64 { return int64((w.r.Rank + k) % w.r.World) }

// combineDelivered launches the kernel that combines what is delivered, on a track of its
// own, where something is: one for aligned memory of up to four ranks, which peers need
// not know, and one for all other.
func (w writer) combineDelivered() {
	shard := w.shard()
	w.If(w.Mul(w.apart(), w.Lt(w.Const(0), shard)), func() {
		combine := func(kernel string) {
			w.Launch("all_reduce_"+w.r.DType.String(), kernel+"_"+w.r.DType.String(), w.Const(w.beside()), w.Const(maxThreads),
				w.arguments(shard)...)
		}
		const aligned, other = "shunt_all_reduce_delivered", "shunt_all_reduce_delivered_any"
		if w.r.World > 4 {
			combine(other)
			return
		}
		zero := w.Const(0)
		vector := w.Const(16)
		beyond := w.Add(w.Mod(w.Address(w.Send(zero)), vector), w.Mod(w.Address(w.Recv(zero)), vector))
		w.If(w.Eq(beyond, zero), func() { combine(aligned) })
		w.If(beyond, func() { combine(other) })
	})
}
