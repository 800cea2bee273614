package cudaipctest

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
)

// Copied counts, in this process, the operations that began by symmetricBegin.
var Copied atomic.Int64

// symmetricBegin returns once every rank has called it, having compared where
// their receive memory lies: send is the number of the symmetric range, recv the
// offset there.
func symmetricBegin(c *call) {
	mine := [3]uint64{c.send, c.recv, uint64(c.bytes)}
	own := make([]byte, 24)
	for i, w := range mine {
		storeBits(own[8*i:], 8, w)
	}
	all := c.rows(24)
	c.exchange(c.everyone(own), all)
	if c.lost {
		return
	}
	for p := range c.world {
		if p == c.rank || slices.Equal(all[p], own) {
			continue
		}
		var theirs [3]uint64
		for i := range theirs {
			theirs[i] = loadBits(all[p][8*i:], 8)
		}
		c.asymmetric(p, mine, theirs)
		return
	}
	Copied.Add(1)
}

// asymmetric says where a peer's memory differs, and stays until the communicator
// is aborted.
func (c *call) asymmetric(peer int, mine, theirs [3]uint64) {
	if c.watch == 0 {
		return
	}
	c.contradict(plugin.FaultAsymmetric, peer, mine, theirs)
	limit := c.limit
	if limit == 0 {
		limit = atomic.LoadUint64(word(c.watch + plugin.WatchTimeout))
	}
	for since := time.Now(); atomic.LoadUint32(half(c.watch+plugin.WatchAbort)) == 0 &&
		(limit == 0 || time.Since(since) < time.Duration(limit)); {
		select {
		case <-c.done:
			return
		default:
			cudatest.Backoff(time.Since(since))
		}
	}
}

// deliveries are the chunks of a shard that copies deliver.
const deliveries = 2

// symmetricTurn stands between the copies of an all_reduce: root says which turn it
// is.
func symmetricTurn(c *call) {
	own := c.region[c.rank]
	base := atomic.LoadUint64(word(own + turnAt))
	for p := range c.world {
		if c.root < deliveries && p != c.rank {
			atomic.StoreUint64(word(c.region[p]+deliveredAt+uint64(8*c.rank)), base+uint64(c.root)+1)
		}
	}
	if c.root == 0 {
		return
	}
	for p := range c.world {
		c.reached(own+combinedAt+uint64(8*p), base+uint64(c.root), p)
	}
	if c.root == deliveries {
		atomic.StoreUint64(word(own+turnAt), base+deliveries)
	}
}

// reached waits until a counter that a peer raises has a value.
func (c *call) reached(counter, value uint64, peer int) {
	for int64(atomic.LoadUint64(word(counter))-value) < 0 && !c.over(peer) {
	}
	c.moved()
}

// allReduceDelivered combines what peers' copies deliver into the receive memory,
// chunk by chunk; bytes is a shard's length.
func allReduceDelivered(c *call, d plugin.DType) {
	own, shard := c.region[c.rank], uint64(c.bytes)
	base := atomic.LoadUint64(word(own + turnAt))
	first := (shard/2 + 15) / 16 * 16
	for chunk, at := range []uint64{0, first} {
		length, number := int64(first), base+uint64(chunk)+1
		if chunk > 0 {
			length = int64(shard - first)
		}
		var parts [maxRanks][]byte
		for p := range c.world {
			if p == c.rank {
				parts[p] = memory(c.send+uint64(p)*shard+at, length)
				continue
			}
			c.reached(own+deliveredAt+uint64(8*p), number, p)
			parts[p] = memory(c.recv+uint64(p)*shard+at, length)
		}
		var scalars [maxRanks]float64
		c.store(c.recv+uint64(c.rank)*shard+at, c.combined(d, parts, scalars))
		for p := range c.world {
			atomic.StoreUint64(word(c.region[p]+combinedAt+uint64(8*c.rank)), number)
		}
		Delivered.Add(1)
	}
}

// Delivered counts, in this process, the chunks that were combined where copies had
// delivered them.
var Delivered atomic.Int64
