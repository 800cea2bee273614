package conformance

import "github.com/shunt-ccl/shunt/plugin"

// block is a run of elements within a buffer and what it holds: one period of
// a table that repeats from the block's start.
type block struct {
	at, count int64
	table     []byte
}

// layout is one rank's part of a case: how long its buffers are, what they
// hold before and must hold afterwards, in elements. What no block covers
// holds noise before and the same noise afterwards.
type layout struct {
	send, recv  int64   // extents
	input       []block // in the send buffer
	output      []block // in the receive buffer
	inPlaceAt   int64   // in place: where the smaller buffer lies in the larger
	sendIsInner bool    // in place: the send buffer lies in the receive buffer, not the other way round
	sendCounts  []int64
	sendDispls  []int64
	recvCounts  []int64
	recvDispls  []int64
	count       int64 // Operation.Count
}

// layoutOf computes rank's part.
func (c *Case) layoutOf(rank int) *layout {
	n, world := c.Count, c.World
	l := &layout{count: n, sendIsInner: true}
	isRoot := rank == c.Root
	switch c.Collective {
	case plugin.AllReduce, plugin.Reduce:
		l.send, l.recv = n, n
		l.input = []block{{0, n, c.inputTable(rank, 0, n)}}
		if c.Collective == plugin.AllReduce || isRoot {
			l.output = []block{{0, n, c.reducedTable(0, n)}}
		}
	case plugin.Broadcast:
		l.send, l.recv = n, n
		if isRoot {
			l.input = []block{{0, n, c.inputTable(rank, 0, n)}}
		}
		l.output = []block{{0, n, c.inputTable(c.Root, 0, n)}}
	case plugin.AllGather, plugin.AllGatherV, plugin.Gather, plugin.GatherV:
		c.gatherLayout(l, rank, isRoot)
	case plugin.ReduceScatter, plugin.ReduceScatterV:
		counts, displs := c.blocks(0xdd)
		_, l.send = c.placed(counts, 0xdd)
		l.recv = counts[rank]
		for b := range world {
			l.input = append(l.input, block{displs[b], counts[b], c.inputTable(rank, b, counts[b])})
		}
		l.output = []block{{0, counts[rank], c.reducedTable(rank, counts[rank])}}
		l.sendIsInner, l.inPlaceAt = false, displs[rank]
		if c.Collective == plugin.ReduceScatterV {
			l.sendCounts, l.sendDispls = counts, c.given(displs)
		}
	case plugin.AllToAll, plugin.AllToAllV:
		c.exchangeLayout(l, rank)
	case plugin.Scatter, plugin.ScatterV:
		counts, displs := c.blocks(0xdd)
		if isRoot {
			_, l.send = c.placed(counts, 0xdd)
			for b := range world {
				l.input = append(l.input, block{displs[b], counts[b], c.inputTable(rank, b, counts[b])})
			}
		}
		l.recv, l.count = counts[rank], counts[rank]
		l.output = []block{{0, counts[rank], c.inputTable(c.Root, rank, counts[rank])}}
		l.sendIsInner, l.inPlaceAt = false, displs[rank]
		if c.Collective == plugin.ScatterV && isRoot {
			l.sendCounts, l.sendDispls = counts, c.given(displs)
		}
	case plugin.Barrier:
		l.count = 0
	}
	return l
}

// blocks returns the counts and displacements of one block per rank.
func (c *Case) blocks(salt uint64) (counts, displs []int64) {
	counts = make([]int64, c.World)
	for r := range counts {
		counts[r] = c.Count
		if c.Collective.Varying() {
			counts[r] = c.blockCount(r, 0)
		}
	}
	displs, _ = c.placed(counts, salt)
	return counts, displs
}

// placed returns displacements for varying collectives, and packed for the others.
func (c *Case) placed(counts []int64, salt uint64) ([]int64, int64) {
	if c.Collective.Varying() {
		return c.displacements(counts, salt)
	}
	even := Case{Displ: Packed}
	return even.displacements(counts, salt)
}

// given returns the displacements that the caller passes.
func (c *Case) given(displs []int64) []int64 {
	if c.Displ == NoDispl {
		return nil
	}
	return displs
}

func (c *Case) gatherLayout(l *layout, rank int, isRoot bool) {
	counts, displs := c.blocks(0xdd)
	_, extent := c.placed(counts, 0xdd)
	all := c.Collective == plugin.AllGather || c.Collective == plugin.AllGatherV
	l.send, l.count = counts[rank], counts[rank]
	l.input = []block{{0, counts[rank], c.inputTable(rank, 0, counts[rank])}}
	l.inPlaceAt = displs[rank]
	if !all && !isRoot {
		return
	}
	l.recv = extent
	for r := range c.World {
		l.output = append(l.output, block{displs[r], counts[r], c.inputTable(r, 0, counts[r])})
	}
	if c.Collective.Varying() {
		l.recvCounts, l.recvDispls = counts, c.given(displs)
	}
}

func (c *Case) exchangeLayout(l *layout, rank int) {
	sendCounts, recvCounts := make([]int64, c.World), make([]int64, c.World)
	for peer := range c.World {
		sendCounts[peer], recvCounts[peer] = c.Count, c.Count
		if c.Collective == plugin.AllToAllV {
			sendCounts[peer], recvCounts[peer] = c.blockCount(rank, peer), c.blockCount(peer, rank)
		}
	}
	sendDispls, sendEnd := c.placedRows(sendCounts, 0x5d)
	recvDispls, recvEnd := c.placedRows(recvCounts, 0x4d)
	l.send, l.recv = sendEnd, recvEnd
	for peer := range c.World {
		l.input = append(l.input, block{sendDispls[peer], sendCounts[peer], c.inputTable(rank, peer, sendCounts[peer])})
		l.output = append(l.output, block{recvDispls[peer], recvCounts[peer], c.inputTable(peer, rank, recvCounts[peer])})
	}
	if c.Collective == plugin.AllToAllV {
		l.count = 0
		l.sendCounts, l.recvCounts = sendCounts, recvCounts
		l.sendDispls, l.recvDispls = c.given(sendDispls), c.given(recvDispls)
		if c.OnDevice {
			l.send, l.recv = c.capacity(), c.capacity()
		}
	}
}

// canBeInPlace says which collectives have an in-place form.
func canBeInPlace(v plugin.Collective) bool {
	switch v {
	case plugin.AllToAll, plugin.AllToAllV, plugin.Barrier:
		return false
	}
	return true
}
