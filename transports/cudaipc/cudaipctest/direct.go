package cudaipctest

import (
	"bytes"
	"sync/atomic"

	"github.com/shunt-ccl/shunt/plugin"
)

// References are as in kernels/direct.cuh: the export's number plus 1 above bit
// 48, the offset below; 0 for what cannot be reached.
const (
	offsetBits = 48
	nothing    = ^uint64(0) // no bytes, no address needed
)

// reference finds the export that holds an address range and that all peers have
// mapped. No bytes need none; a negative number is a buffer that peers must not
// reach.
func (c *call) reference(address uint64, n int64) uint64 {
	switch {
	case n == 0:
		return nothing
	case n < 0:
		return 0
	}
	table := c.region[c.rank] + directoryAt
	everyone := (uint64(1)<<c.world - 1) &^ (uint64(1) << c.rank)
	for i := range plugin.DirectoryExports {
		at := table + uint64(plugin.DirectoryEntry(i))
		size := atomic.LoadUint64(word(at + 8))
		if size == 0 || atomic.LoadUint64(word(at+16))&everyone != everyone {
			continue
		}
		if base := atomic.LoadUint64(word(at)); address >= base && uint64(n) <= size && address-base <= size-uint64(n) {
			c.count(plugin.DirectoryUsed + int64(8*i))
			return uint64(i+1)<<offsetBits | (address - base)
		}
	}
	return 0
}

// count raises one of the directory's counts.
func (c *call) count(offset int64) {
	atomic.AddUint64(word(c.region[c.rank]+directoryAt+uint64(plugin.DirectoryCounts(c.world)+offset)), 1)
}

// looking begins what reads the directory, and what peers do for it; the returned
// function ends it.
func (c *call) looking() (ended func()) {
	c.count(plugin.DirectoryBegun)
	c.count(plugin.DirectoryDecided)
	return func() {
		if !c.lost {
			c.count(plugin.DirectoryForgotten)
			c.count(plugin.DirectoryEnded)
		}
	}
}

// imported returns the address of a peer's reference here.
func (c *call) imported(peer int, reference uint64) uint64 {
	if reference == 0 || reference == nothing {
		return 0
	}
	base := atomic.LoadUint64(word(c.region[c.rank] + directoryAt + uint64(plugin.DirectoryImport(peer,
		int(reference>>offsetBits)-1))))
	return base + reference&(1<<offsetBits-1)
}

// miss leaves an address that peers cannot reach for the host.
func (c *call) miss(address uint64, n int64) {
	if c.watch != 0 {
		atomic.StoreUint64(word(c.watch+plugin.WatchMissedBytes), uint64(n))
		atomic.StoreUint64(word(c.watch+plugin.WatchMissed), address)
	}
}

// present publishes the addresses of this rank's buffers to all ranks, and returns where
// every rank's are mapped here. ok, the same on all ranks, reports whether all of them
// can be reached.
func (c *call) present(sendBytes, recvBytes int64) (send, recv [maxRanks]uint64, ok bool) {
	mine := []uint64{c.reference(c.send, sendBytes), c.reference(c.recv, recvBytes)}
	switch {
	case mine[0] == 0 && sendBytes > 0:
		c.miss(c.send, sendBytes)
	case mine[1] == 0 && recvBytes > 0:
		c.miss(c.recv, recvBytes)
	}
	own := make([]byte, 16)
	storeBits(own, 8, mine[0])
	storeBits(own[8:], 8, mine[1])
	got := c.rows(16)
	c.exchange(c.everyone(own), got)
	got[c.rank] = own
	ok = !c.lost
	for p := range c.world {
		s, r := loadBits(got[p], 8), loadBits(got[p][8:], 8)
		ok = ok && s != 0 && r != 0
		if p == c.rank {
			send[p], recv[p] = c.send, c.recv
		} else if ok {
			send[p], recv[p] = c.imported(p, s), c.imported(p, r)
		}
	}
	if ok {
		Direct.Add(1)
	} else {
		Staged.Add(1)
	}
	return send, recv, ok
}

// Direct counts, in this process, the calls of direct kernels that reached all
// buffers.
var Direct atomic.Int64

// Staged counts those that did not.
var Staged atomic.Int64

func allReduceDirect(c *call, d plugin.DType) {
	defer c.looking()()
	send, _, ok := c.present(c.bytes, c.bytes)
	if !ok {
		allReduce(c, d)
		return
	}
	result := c.pulled(d, send, 0, c.bytes)
	c.meet() // everyone has read
	c.store(c.recv, result)
}

// allReduceStaged reduces a shard of what all sent here, and stores it into every
// rank's receive memory.
func allReduceStaged(c *call, d plugin.DType) {
	defer c.looking()()
	_, recv, ok := c.present(0, c.bytes)
	if !ok {
		allReduce(c, d)
		return
	}
	shard := ((c.bytes+int64(c.world)-1)/int64(c.world) + 15) / 16 * 16
	at := func(r int) int64 { return min(int64(r)*shard, c.bytes) }
	send, scalars, all := bytes.Clone(memory(c.send, c.bytes)), c.scalars(), c.rows(at(c.rank+1)-at(c.rank))
	var out [maxRanks][]byte
	for p := range c.world {
		out[p] = send[at(p):at(p+1)]
	}
	mine := out[c.rank]
	c.exchange(out, all)
	all[c.rank] = mine
	result := c.combined(d, all, scalars)
	for p := range c.world {
		copy(memory(recv[p]+uint64(at(c.rank)), int64(len(result))), result)
	}
	c.meet()
}

// broadcastDirect pushes the root's data into every rank's receive memory.
func broadcastDirect(c *call) {
	defer c.looking()()
	need := c.bytes
	if c.rank == c.root {
		need = 0
	}
	_, recv, ok := c.present(0, need)
	if !ok {
		broadcast(c)
		return
	}
	for p := range c.world {
		if c.rank == c.root && recv[p] != c.send {
			copy(memory(recv[p], c.bytes), memory(c.send, c.bytes))
		}
	}
	c.meet()
}

func reduceDirect(c *call, d plugin.DType) {
	defer c.looking()()
	recvBytes := int64(0)
	if c.rank == c.root {
		recvBytes = c.bytes
	}
	send, _, ok := c.present(c.bytes, recvBytes)
	if !ok {
		reduce(c, d)
		return
	}
	result := c.pulled(d, send, 0, c.bytes)
	c.meet()
	if c.rank == c.root {
		c.store(c.recv, result)
	}
}

func reduceScatterDirect(c *call, d plugin.DType) {
	defer c.looking()()
	send, _, ok := c.present(c.bytes*int64(c.world), 0)
	if !ok {
		reduceScatter(c, d)
		return
	}
	result := c.pulled(d, send, int64(c.rank)*c.bytes, c.bytes)
	c.meet()
	c.store(c.recv, result)
}

// reduceScatterVDirect is reduceScatterDirect of blocks of any lengths; each peer is sent where its own begins.
func reduceScatterVDirect(c *call, d plugin.DType) {
	defer c.looking()()
	counts, displs := c.counts[0], c.counts[1]
	end := int64(0)
	for p := range c.world {
		if counts[p] > 0 {
			end = max(end, displs[p]+counts[p])
		}
	}
	send, _, ok := c.present(end, 0)
	if !ok {
		reduceScatterV(c, d)
		return
	}
	var told [maxRanks][]byte
	for p := range c.world {
		told[p] = make([]byte, 8)
		storeBits(told[p], 8, uint64(displs[p]))
	}
	heard := c.rows(8)
	c.exchange(told, heard)
	heard[c.rank] = told[c.rank]
	for p := range c.world {
		send[p] += loadBits(heard[p], 8)
	}
	result := c.pulled(d, send, 0, counts[c.rank])
	c.meet()
	c.store(c.recv, result)
}

// pulled reduces n bytes at an offset of every rank's send memory.
func (c *call) pulled(d plugin.DType, send [maxRanks]uint64, offset, n int64) []byte {
	var all [maxRanks][]byte
	for p := range c.world {
		all[p] = bytes.Clone(memory(send[p]+uint64(offset), n))
	}
	return c.combined(d, all, c.scalars())
}

// gatherDirect pushes blocks into every rank's receive memory.
func gatherDirect(spread bool) func(*call) {
	return func(c *call) {
		defer c.looking()()
		need := c.bytes * int64(c.world)
		if spread && c.send == c.recv {
			need = -1 // in place, a peer's block would land on one not yet sent
		}
		_, recv, ok := c.present(0, need)
		if !ok {
			gather(spread)(c)
			return
		}
		for p := range c.world {
			from := c.send
			if spread {
				from += uint64(int64(p) * c.bytes)
			}
			copy(memory(recv[p]+uint64(int64(c.rank)*c.bytes), c.bytes), memory(from, c.bytes))
		}
		c.meet()
	}
}
