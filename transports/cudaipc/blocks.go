package cudaipc

import (
	"math"
	"slices"

	"github.com/shunt-ccl/shunt/plugin"
)

// Plans of reduce_scatter_v and all_gather_v, whose blocks have any lengths.

// Lengths of blocks from which on it pays to tell them apart: up to shortBlock they are reduced at once however they
// differ, as a kernel for each rank would take longer; and from longBlock on in part.
const (
	shortBlock = 512 * kib
	longBlock  = 4 * mib
)

// longGather is the length of a block of all_gather_v from which on it pays to tell blocks apart.
const longGather = 16 * mib

// reduceBlocks reduces every rank's block to it: all blocks at once, as kernels of reduce_scatter do. Each link then
// carries the longest block to or from every peer, where a reduce to one rank after the other carries the sum of them
// all. So where the sum is less, what is longer than the second shortest is left to the latter: fewer blocks than there
// are peers reach so far.
func (w writer) reduceBlocks(a algorithm) {
	zero := w.Const(0)
	counts, firsts := make([]plugin.Reg, w.r.World), make([]plugin.Reg, w.r.World)
	longest, sum := zero, zero
	shortest, second := w.Const(math.MaxInt64), w.Const(math.MaxInt64)
	for p := range counts {
		c := w.SendCount(p)
		counts[p] = c
		longest, sum = w.Max(longest, c), w.Add(sum, c)
		second = w.Min(second, w.Max(shortest, c))
		shortest = w.Min(shortest, c)
	}
	together := w.Max(w.Le(longest, w.Const(shortBlock)), w.Le(w.Mul(longest, w.Const(int64(w.r.World-1))), sum))
	second = w.Sub(second, w.Mod(second, w.Const(16))) // what is behind is aligned as it was
	inPart := w.Mul(w.Eq(together, zero), w.Le(w.Const(longBlock), second))
	w.If(together, func() { w.reduceAtOnce(a, counts, longest) })
	w.If(inPart, func() {
		for p, c := range counts {
			firsts[p] = w.Min(c, second)
		}
		w.reduceAtOnce(a, firsts, second)
		w.reduceToEach(firsts)
	})
	w.If(w.Eq(w.Max(together, inPart), zero), func() { w.reduceToEach(nil) })
}

// reduceAtOnce reduces so many bytes of every rank's block to it, by the kernel of reduce_scatter that suits the
// longest.
func (w writer) reduceAtOnce(a algorithm, counts []plugin.Reg, longest plugin.Reg) {
	zero, vector := w.Const(0), w.Const(16)
	misses := w.Max(w.Mod(w.Address(w.Send(zero)), vector), w.Mod(w.Address(w.Recv(zero)), vector))
	args := w.arguments(longest)
	args[argRoot] = plugin.Value(zero, 4)
	var values [4][maxRanks]plugin.Reg // counts and displacements of sending, and those of receiving, which are not read
	for i := range values {
		for p := range maxRanks {
			values[i][p] = zero
		}
	}
	for p, c := range counts {
		// The displacement of nothing may be outside of the send memory.
		values[0][p], values[1][p] = c, w.Mul(w.SendDispl(p), w.Lt(zero, c))
		misses = w.Max(misses, w.Mod(values[1][p], vector))
	}
	for _, array := range values {
		for _, r := range array {
			args = append(args, plugin.Value(r, 8))
		}
	}
	odd := zero // some block begins anywhere where the first is aligned, as all ranks know
	for _, c := range counts[:w.r.World-1] {
		odd = w.Max(odd, w.Mod(c, vector))
	}
	done := int64(-1) // the longest block that a kernel before takes
	for _, like := range algorithms {
		if like.collective != plugin.ReduceScatter || !like.worlds.has(w.r.World) || like.name == "staged" {
			continue
		}
		suits := w.Lt(w.Const(done), longest)
		if like.name != "direct" {
			suits = w.Mul(suits, w.Le(longest, w.Const(like.max)))
			done = like.max
		}
		like.kernel = a.kernel + "_" + like.name
		w.If(suits, func() {
			switch {
			case !like.hasAny(w.r.DType):
				w.runAs(like, longest, args)
			case like.grid == few: // which are too few where they put vectors together
				w.If(w.Eq(odd, zero), func() { w.runTwin(like, longest, misses, args) })
				like.grid = full
				w.If(odd, func() { w.runTwin(like, longest, misses, args) })
			default:
				w.runTwin(like, longest, misses, args)
			}
		})
	}
}

// reduceToEach reduces every rank's block to it, one rank after the other, each
// by the kernel of reduce that suits the block. Blocks of zero bytes are reduced
// too, so that all ranks always launch the same number of kernels. What is in front, of each block, is reduced already;
// nil: nothing.
func (w writer) reduceToEach(front []plugin.Reg) {
	zero, common := w.Const(0), w.arguments(w.Const(0))
	if front != nil {
		common[argRecv] = plugin.Address(w.Recv(front[w.r.Rank]))
	}
	for root := range w.r.World {
		bytes, displ := w.SendCount(root), w.SendDispl(root)
		if front != nil {
			bytes, displ = w.Sub(bytes, front[root]), w.Add(displ, front[root])
		}
		args := slices.Clone(common)
		// The displacement of nothing may be outside of the send memory.
		send := w.Send(w.Mul(displ, w.Lt(zero, bytes)))
		args[argSend] = plugin.Address(send)
		args[argBytes] = plugin.Value(bytes, 8)
		args[argRoot] = plugin.Value(w.Const(int64(root)), 4)
		done := int64(-1) // the largest block that a kernel before takes
		for _, a := range algorithms {
			if a.collective != plugin.Reduce || !a.worlds.has(w.r.World) {
				continue
			}
			suits := w.Lt(w.Const(done), bytes)
			if a.max != 0 {
				suits = w.Mul(suits, w.Le(bytes, w.Const(a.max)))
				done = a.max
			}
			w.If(suits, func() {
				w.run(a, bytes, send, args)
			})
		}
	}
}

// gatherBlocks sends every rank's block to all: all blocks at once, as all_to_all_v does. A rank then stores its block
// once for every peer, so one that is longer than the others leaves most links without work. Where a kernel for each
// rank's block takes less time, what is longer than the second shortest is broadcast.
func (w writer) gatherBlocks(a algorithm) {
	zero, most, peers := w.Const(0), w.Const(math.MaxInt64), w.Const(int64(w.r.World-1))
	m := w.messages()
	counts := m.recvCount[:w.r.World]
	longest, shortest, second := zero, most, most
	for _, c := range counts {
		longest = w.Max(longest, c)
		second = w.Min(second, w.Max(shortest, c))
		shortest = w.Min(shortest, c)
	}
	second = w.Sub(second, w.Mod(second, w.Const(16))) // what is behind is aligned as it was
	carried := w.Mul(peers, second)                    // by the busiest links
	for _, c := range counts {
		carried = w.Add(carried, w.Sub(w.Max(c, second), second))
	}
	// The beginnings and ends of kernels cost an eighth more and 8 MiB.
	carried = w.Add(w.Add(carried, w.Div(carried, w.Const(8))), w.Const(8*mib))
	apart := w.Mul(w.Le(w.Const(longGather), longest), w.Lt(carried, w.Mul(peers, longest)))
	front := w.Select(apart, second, most)
	for p, c := range counts {
		m.recvCount[p], m.sendCount[p] = w.Min(c, front), w.Min(m.sendCount[p], front)
	}
	w.exchange(a, m)
	w.If(apart, func() { w.broadcastEach(m.recvCount[:w.r.World]) })
}

// broadcastEach broadcasts what is behind the front of every rank's block, one rank's after the other, each by the
// kernel of broadcast that suits it. What has zero bytes is broadcast too, so that all ranks always launch the same
// number of kernels.
func (w writer) broadcastEach(front []plugin.Reg) {
	zero, common := w.Const(0), w.arguments(w.Const(0))
	broadcasts := slices.DeleteFunc(slices.Clone(algorithms), func(a algorithm) bool {
		return a.collective != plugin.Broadcast || !a.worlds.has(w.r.World)
	})
	for root := range w.r.World {
		bytes := w.Sub(w.RecvCount(root), front[root])
		some := w.Lt(zero, bytes)
		// The displacement of nothing may be outside of the recv memory.
		recv := w.Recv(w.Mul(w.Add(w.RecvDispl(root), front[root]), some))
		send := recv
		if root == w.r.Rank {
			send = w.Send(w.Mul(front[root], some))
		}
		args := slices.Clone(common)
		args[argSend], args[argRecv] = plugin.Address(send), plugin.Address(recv)
		args[argBytes] = plugin.Value(bytes, 8)
		args[argRoot] = plugin.Value(w.Const(int64(root)), 4)
		for i, a := range broadcasts {
			suits := w.Le(w.Const(a.min), bytes)
			if i+1 < len(broadcasts) {
				suits = w.Mul(suits, w.Lt(bytes, w.Const(broadcasts[i+1].min)))
			}
			w.If(suits, func() { w.run(a, bytes, send, args) })
		}
	}
}
