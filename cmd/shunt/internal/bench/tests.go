package bench

import (
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// test is one row of the table of what is measured.
type test struct {
	name       string
	collective plugin.Collective // whose choice of algorithm is shown
	// bus is busbw / algbw for a world of n, by the conventions of nccl-tests.
	bus func(n float64) float64
	// shape lays the operation out for one rank: the memory, the call and what
	// must come out. elements is the size that was asked for, in elements.
	shape func(at place, elements int64) shape
}

// place is the rank, world and root that a shape is made for.
type place struct{ world, rank, root int }

// shape is one operation of one size as one rank sees it. All lengths and
// offsets are in elements.
type shape struct {
	elements int64 // of the size column: the whole buffer, as nccl-tests count
	count    int64 // of the count column: one rank's message
	send     int64 // length of the send buffer
	recv     int64 // length of the receive buffer
	expect   []piece

	operations []host.Operation // without memory; several run as a group
	window     windowUse        // instead of operations

	// In place, send and receive memory are parts of one buffer.
	inPlace              bool
	placeSend, placeRecv int64
}

// piece is a part of the receive buffer and whose data must be there.
type piece struct {
	offset, length int64
	from           source
	first          int64 // index of the source's first element
}

// windowUse says how a one-sided operation uses the window.
type windowUse int

const (
	noWindow windowUse = iota
	putNext            // put into the next rank's window, signal it, wait for the previous one
	getNext            // get from the next rank's window
)

func one(float64) float64     { return 1 }
func most(n float64) float64  { return (n - 1) / n }
func twice(n float64) float64 { return 2 * (n - 1) / n }

// tests are all measurements, in the order of the report.
var tests = []test{
	{"all_reduce", plugin.AllReduce, twice, func(at place, n int64) shape {
		return shape{
			elements: n, count: n, send: n, recv: n, inPlace: true,
			operations: []host.Operation{{Collective: plugin.AllReduce, Count: n}},
			expect:     []piece{{0, n, reduced, 0}},
		}
	}},
	{"reduce", plugin.Reduce, one, func(at place, n int64) shape {
		s := shape{
			elements: n, count: n, send: n, recv: n, inPlace: true,
			operations: []host.Operation{{Collective: plugin.Reduce, Count: n, Root: at.root}},
		}
		if at.rank == at.root {
			s.expect = []piece{{0, n, reduced, 0}}
		}
		return s
	}},
	{"broadcast", plugin.Broadcast, one, func(at place, n int64) shape {
		return shape{
			elements: n, count: n, send: n, recv: n, inPlace: true,
			operations: []host.Operation{{Collective: plugin.Broadcast, Count: n, Root: at.root}},
			expect:     []piece{{0, n, source(at.root), 0}},
		}
	}},
	{"all_gather", plugin.AllGather, most, func(at place, n int64) shape {
		return allGather(at, even(at.world, n), host.Operation{Collective: plugin.AllGather})
	}},
	{"all_gather_v", plugin.AllGatherV, most, func(at place, n int64) shape {
		counts := uneven(at.world, n)
		return allGather(at, counts, host.Operation{Collective: plugin.AllGatherV, RecvCounts: counts})
	}},
	{"reduce_scatter", plugin.ReduceScatter, most, func(at place, n int64) shape {
		return reduceScatter(at, even(at.world, n), host.Operation{Collective: plugin.ReduceScatter})
	}},
	{"reduce_scatter_v", plugin.ReduceScatterV, most, func(at place, n int64) shape {
		counts := uneven(at.world, n)
		return reduceScatter(at, counts, host.Operation{Collective: plugin.ReduceScatterV, SendCounts: counts})
	}},
	{"all_to_all", plugin.AllToAll, most, func(at place, n int64) shape {
		block := max(n/int64(at.world), 1)
		pair := func(int, int) int64 { return block }
		return allToAll(at, pair, host.Operation{Collective: plugin.AllToAll, Count: block})
	}},
	{"all_to_all_v", plugin.AllToAllV, most, func(at place, n int64) shape {
		block := max(n/int64(at.world), 1)
		// Half, whole or one and a half blocks, different in the two directions.
		pair := func(from, to int) int64 { return max(block*int64(1+(from+2*to)%3)/2, 1) }
		op := host.Operation{Collective: plugin.AllToAllV}
		for peer := range at.world {
			op.SendCounts = append(op.SendCounts, pair(at.rank, peer))
			op.RecvCounts = append(op.RecvCounts, pair(peer, at.rank))
		}
		return allToAll(at, pair, op)
	}},
	{"gather", plugin.Gather, most, func(at place, n int64) shape {
		return gather(at, even(at.world, n), host.Operation{Collective: plugin.Gather, Root: at.root})
	}},
	{"gather_v", plugin.GatherV, most, func(at place, n int64) shape {
		counts := uneven(at.world, n)
		return gather(at, counts, host.Operation{Collective: plugin.GatherV, Root: at.root, RecvCounts: counts})
	}},
	{"scatter", plugin.Scatter, most, func(at place, n int64) shape {
		return scatter(at, even(at.world, n), host.Operation{Collective: plugin.Scatter, Root: at.root})
	}},
	{"scatter_v", plugin.ScatterV, most, func(at place, n int64) shape {
		counts := uneven(at.world, n)
		return scatter(at, counts, host.Operation{Collective: plugin.ScatterV, Root: at.root, SendCounts: counts})
	}},
	{"sendrecv", plugin.Send, one, func(at place, n int64) shape {
		next, previous := (at.rank+1)%at.world, (at.rank+at.world-1)%at.world
		return shape{
			elements: n, count: n, send: n, recv: n,
			operations: []host.Operation{
				{Collective: plugin.Send, Count: n, Root: next},
				{Collective: plugin.Recv, Count: n, Root: previous},
			},
			expect: []piece{{0, n, source(previous), 0}},
		}
	}},
	{"put", plugin.Put, one, func(at place, n int64) shape {
		return shape{
			elements: n, count: n, send: n, recv: n, window: putNext,
			expect: []piece{{0, n, source((at.rank + at.world - 1) % at.world), 0}},
		}
	}},
	{"get", plugin.Get, one, func(at place, n int64) shape {
		return shape{
			elements: n, count: n, send: n, recv: n, window: getNext,
			expect: []piece{{0, n, source((at.rank + 1) % at.world), 0}},
		}
	}},
	{"barrier", plugin.Barrier, one, func(place, int64) shape {
		return shape{operations: []host.Operation{{Collective: plugin.Barrier}}}
	}},
}

// even returns equal counts that make up n elements, one each at least.
func even(world int, n int64) []int64 {
	counts := make([]int64, world)
	for r := range counts {
		counts[r] = max(n/int64(world), 1)
	}
	return counts
}

// uneven returns counts in the proportion 1 : 2 : 3 : 1 : …, one each at least.
func uneven(world int, n int64) []int64 {
	weights := int64(0)
	for r := range world {
		weights += int64(1 + r%3)
	}
	counts := make([]int64, world)
	for r := range counts {
		counts[r] = max(n/weights*int64(1+r%3), 1)
	}
	return counts
}

// packed returns the offset of rank's block, and the length of all.
func packed(counts []int64, rank int) (begin, all int64) {
	for r, c := range counts {
		if r < rank {
			begin += c
		}
		all += c
	}
	return begin, all
}

// inOrder returns pieces of every rank's data, one after the other.
func inOrder(counts []int64) []piece {
	var pieces []piece
	at := int64(0)
	for r, c := range counts {
		pieces = append(pieces, piece{at, c, source(r), 0})
		at += c
	}
	return pieces
}

func allGather(at place, counts []int64, op host.Operation) shape {
	begin, all := packed(counts, at.rank)
	op.Count = counts[at.rank]
	return shape{
		elements: all, count: op.Count, send: op.Count, recv: all, inPlace: true, placeSend: begin,
		operations: []host.Operation{op}, expect: inOrder(counts),
	}
}

func reduceScatter(at place, counts []int64, op host.Operation) shape {
	begin, all := packed(counts, at.rank)
	op.Count = counts[at.rank]
	return shape{
		elements: all, count: op.Count, send: all, recv: op.Count, inPlace: true, placeRecv: begin,
		operations: []host.Operation{op}, expect: []piece{{0, op.Count, reduced, begin}},
	}
}

func allToAll(at place, pair func(from, to int) int64, op host.Operation) shape {
	s := shape{count: op.Count, operations: []host.Operation{op}}
	for peer := range at.world {
		s.send += pair(at.rank, peer)
		first := int64(0) // of what the peer sends to this rank, in its send buffer
		for before := range at.rank {
			first += pair(peer, before)
		}
		n := pair(peer, at.rank)
		s.expect = append(s.expect, piece{s.recv, n, source(peer), first})
		s.recv += n
		s.count = max(s.count, pair(at.rank, peer))
		total := int64(0)
		for to := range at.world {
			total += pair(peer, to)
		}
		s.elements = max(s.elements, total)
	}
	return s
}

func gather(at place, counts []int64, op host.Operation) shape {
	begin, all := packed(counts, at.rank)
	op.Count = counts[at.rank]
	s := shape{
		elements: all, count: op.Count, send: op.Count, inPlace: true,
		operations: []host.Operation{op},
	}
	if at.rank == at.root {
		s.recv, s.placeSend, s.expect = all, begin, inOrder(counts)
	} else {
		s.operations[0].RecvCounts = nil
	}
	return s
}

func scatter(at place, counts []int64, op host.Operation) shape {
	begin, all := packed(counts, at.rank)
	op.Count = counts[at.rank]
	s := shape{
		elements: all, count: op.Count, recv: op.Count, inPlace: true,
		operations: []host.Operation{op}, expect: []piece{{0, op.Count, source(at.root), begin}},
	}
	if at.rank == at.root {
		s.send, s.placeRecv = all, begin
	} else {
		s.operations[0].SendCounts = nil
	}
	return s
}
