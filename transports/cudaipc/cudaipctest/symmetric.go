package cudaipctest

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"

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
	if atomic.CompareAndSwapUint32(half(c.region[c.rank]), 0, uint32(plugin.FaultAsymmetric)) {
		for i := range 3 {
			atomic.StoreUint64(word(c.watch+plugin.WatchFaultOwn+uint64(8*i)), mine[i])
			atomic.StoreUint64(word(c.watch+plugin.WatchFaultTheirs+uint64(8*i)), theirs[i])
		}
		atomic.StoreUint32(half(c.watch+plugin.WatchFaultPeer), uint32(int32(peer)))
		atomic.StoreUint64(word(c.watch+plugin.WatchFaultEpoch), 1)
		atomic.StoreUint32(half(c.watch+plugin.WatchFault), uint32(plugin.FaultAsymmetric))
	}
	limit := c.limit
	if limit == 0 {
		limit = atomic.LoadUint64(word(c.watch + plugin.WatchTimeout))
	}
	for since := time.Now(); atomic.LoadUint32(half(c.watch+plugin.WatchAbort)) == 0 && (limit == 0 || time.Since(since) < time.Duration(limit)); {
		select {
		case <-c.done:
			return
		default:
			runtime.Gosched()
		}
	}
}
