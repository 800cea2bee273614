package cudaipctest

import (
	"bytes"
	"math"
	"sync/atomic"

	"github.com/shunt-ccl/shunt/plugin"
)

// combined reduces what all ranks sent, in rank order.
func (c *call) combined(d plugin.DType, all [maxRanks][]byte, scalars [maxRanks]float64) []byte {
	return Combine(d, c.op, all[:c.world], scalars[:c.world])
}

// Combine reduces inputs of one length in the order given, as the tables say; scalars are premul_sum's, one for each.
func Combine(d plugin.DType, op plugin.Op, inputs [][]byte, scalars []float64) []byte {
	size := d.Bytes()
	out := make([]byte, len(inputs[0]))
	sources := make([]uint64, len(inputs))
	for at := int64(0); at+size <= int64(len(out)); at += size {
		for r, input := range inputs {
			sources[r] = loadBits(input[at:], size)
		}
		storeBits(out[at:], size, reduceElement(d, op, sources, scalars))
	}
	return out
}

// scalars tells all ranks each one's factor of premul_sum.
func (c *call) scalars() (all [maxRanks]float64) {
	own := make([]byte, 8)
	storeBits(own, 8, math.Float64bits(c.scalar))
	got := c.rows(8)
	c.exchange(c.everyone(own), got)
	got[c.rank] = own
	for p := range c.world {
		all[p] = math.Float64frombits(loadBits(got[p], 8))
	}
	return all
}

func allReduce(c *call, d plugin.DType) {
	own := bytes.Clone(memory(c.send, c.bytes))
	all, scalars := c.rows(c.bytes), c.scalars()
	c.exchange(c.everyone(own), all)
	all[c.rank] = own
	c.store(c.recv, c.combined(d, all, scalars))
}

func reduce(c *call, d plugin.DType) { c.reduce(d, c.exchange) }

// reduceByChannels compares lengths.
func reduceByChannels(c *call, d plugin.DType) { c.reduce(d, c.messages) }

func (c *call) reduce(d plugin.DType, move func(out, in [maxRanks][]byte)) {
	scalars := c.scalars()
	own := bytes.Clone(memory(c.send, c.bytes))
	var out, in [maxRanks][]byte
	if c.rank != c.root {
		out[c.root] = own
		move(out, in)
		return
	}
	in = c.rows(c.bytes)
	all := in
	all[c.rank] = own
	move(out, in)
	c.store(c.recv, c.combined(d, all, scalars))
}

func reduceScatter(c *call, d plugin.DType) {
	scalars := c.scalars()
	send := bytes.Clone(memory(c.send, c.bytes*int64(c.world)))
	var out [maxRanks][]byte
	for p := range c.world {
		out[p] = send[int64(p)*c.bytes:][:c.bytes]
	}
	all := c.rows(c.bytes)
	c.exchange(out, all)
	all[c.rank] = out[c.rank]
	c.store(c.recv, c.combined(d, all, scalars))
}

// reduceScatterV is reduceScatter of blocks of any lengths.
func reduceScatterV(c *call, d plugin.DType) {
	counts, displs := c.counts[0], c.counts[1]
	scalars := c.scalars()
	var out [maxRanks][]byte
	for p := range c.world {
		out[p] = bytes.Clone(memory(c.send+uint64(displs[p]), counts[p]))
	}
	all := c.rows(counts[c.rank])
	c.exchange(out, all)
	all[c.rank] = out[c.rank]
	c.store(c.recv, c.combined(d, all, scalars))
}

// gather returns the kernel of all_gather, or with blocks for each peer that of all_to_all.
func gather(spread bool) func(*call) {
	return func(c *call) {
		n := c.bytes
		if spread {
			n *= int64(c.world)
		}
		send := bytes.Clone(memory(c.send, n))
		out := c.everyone(send)
		if spread {
			for p := range c.world {
				out[p] = send[int64(p)*c.bytes:][:c.bytes]
			}
		}
		in := c.rows(c.bytes)
		c.exchange(out, in)
		in[c.rank] = out[c.rank]
		for p := range c.world {
			c.store(c.recv+uint64(int64(p)*c.bytes), in[p])
		}
	}
}

func broadcast(c *call) { c.broadcast(c.exchange) }

// broadcastByChannels compares lengths.
func broadcastByChannels(c *call) { c.broadcast(c.messages) }

func (c *call) broadcast(move func(out, in [maxRanks][]byte)) {
	var out, in [maxRanks][]byte
	if c.rank == c.root {
		out = c.everyone(memory(c.send, c.bytes))
		move(out, in)
		c.store(c.recv, memory(c.send, c.bytes))
		return
	}
	got := make([]byte, c.bytes)
	in[c.root] = got
	move(out, in)
	c.store(c.recv, got)
}

func barrier(c *call) { c.meet() }

// put copies to memory of a peer.
func put(c *call) { copy(memory(c.recv, c.bytes), memory(c.send, c.bytes)) }

// windowSignal raises the semaphore at recv; the word at send counts.
func windowSignal(c *call) {
	value := atomic.AddUint64(word(c.send), 1)
	atomic.StoreUint64(word(c.recv), value)
}

// windowWait waits until the semaphore at recv was raised so many times more
// than the word at send counts.
func windowWait(c *call) {
	value := atomic.AddUint64(word(c.send), uint64(c.bytes))
	for int64(atomic.LoadUint64(word(c.recv))-value) < 0 {
		if c.over(c.root) {
			return
		}
	}
}

// store writes a result, unless a wait was given up and there is none.
func (c *call) store(at uint64, b []byte) {
	if !c.lost {
		copy(memory(at, int64(len(b))), b)
	}
}

// isOffered is is_offered of kernels/all_to_all_v.cu.
func (c *call) isOffered(peer int, bytes int64) bool {
	long := int64(5 << 18)
	if c.world == 2 {
		long = 7 << 18
	}
	return bytes >= 5<<18 && max(c.counts[0][peer], c.counts[2][peer]) >= long
}

// allToAllV moves a message of its own between every ordered pair. In the long
// form receivers of long messages offer the memory where they are to go.
func (c *call) allToAllV(long bool) {
	sendCount, sendDispl, recvCount, recvDispl := c.counts[0], c.counts[1], c.counts[2], c.counts[3]
	var out, in [maxRanks][]byte
	var direct [maxRanks]uint64
	var landing [maxRanks]bool
	move := c.messages
	if long {
		defer c.looking()()
		l := c.lengths(sendCount, recvCount)
		c.exchangeThen(l.out, l.in, func(p int) []byte {
			c.compare(p, l.in[p], recvCount[p])
			return nil
		})
		if !c.lost {
			direct, landing = c.offers()
		}
		if c.lost {
			return
		}
		move = c.exchange
	}
	for p := range c.world {
		from, to := c.send+uint64(sendDispl[p]), c.recv+uint64(recvDispl[p])
		if p == c.rank {
			copy(memory(to, min(sendCount[p], recvCount[p])), memory(from, min(sendCount[p], recvCount[p])))
			continue
		}
		out[p], in[p] = memory(from, sendCount[p]), memory(to, recvCount[p])
		if direct[p] != 0 {
			copy(memory(direct[p], sendCount[p]), out[p])
			out[p] = []byte{1} // it has landed
		}
		if landing[p] {
			in[p] = make([]byte, 1)
		}
	}
	move(out, in)
}

// offers exchanges the references of long messages, with their lengths. direct is
// where those of this rank may be stored, 0 for through the pipe; landing says whose
// are stored here by their senders.
func (c *call) offers() (direct [maxRanks]uint64, landing [maxRanks]bool) {
	var out, in [maxRanks][]byte
	for p := range c.world {
		if p == c.rank {
			continue
		}
		if c.isOffered(p, c.counts[2][p]) {
			at := c.recv + uint64(c.counts[3][p])
			reference := c.reference(at, c.counts[2][p])
			if reference == 0 {
				c.miss(at, c.counts[2][p])
			}
			landing[p] = reference != 0
			out[p] = make([]byte, 16)
			storeBits(out[p], 8, reference)
			storeBits(out[p][8:], 8, uint64(c.counts[2][p]))
		}
		if c.isOffered(p, c.counts[0][p]) {
			in[p] = make([]byte, 16)
		}
	}
	got := in
	c.exchange(out, in)
	for p := range c.world {
		if got[p] == nil || c.lost {
			continue
		}
		if loadBits(got[p][8:], 8) != uint64(c.counts[0][p]) { // no offer, or for another message
			for !c.over(p) {
			}
			continue
		}
		direct[p] = c.imported(p, loadBits(got[p], 8))
	}
	return direct, landing
}
