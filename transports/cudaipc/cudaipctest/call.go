package cudaipctest

import (
	"encoding/binary"
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
)

// Offsets of the argument block's fields, as in kernels/layout.h.
const (
	argSend   = 0
	argRecv   = 8
	argBytes  = 16
	argScalar = 24
	argAbort  = 32
	argLimit  = 40
	argRank   = 48
	argWorld  = 52
	argOp     = 56
	argRoot   = 60
	argRegion = 64
	argArrays = argRegion + 8*maxRanks // or where counts on the device are, and what follows
)

// call is one launch of a kernel.
type call struct {
	send, recv  uint64
	bytes       int64
	scalar      float64
	watch       uint64
	limit       uint64 // nanoseconds
	rank, world int
	op          plugin.Op
	word        plugin.CallWord
	root        int
	region      [maxRanks]uint64
	pipes       uint64             // their offset in a region
	counts      [4][maxRanks]int64 // send counts and displacements, then receive counts and displacements

	done  <-chan struct{}
	since time.Time // of the present wait; zero: nothing is waited for
	spins int
	lost  bool // a wait was given up
}

// arguments are the fields behind shunt_kernel_args.
type arguments int

const (
	plain    arguments = iota // nothing
	varying                   // shunt_messages
	onDevice                  // what shunt_kernel_args_on_device has
)

func newCall(g cudatest.Grid, behind arguments) *call {
	p := g.Launch.Params[:]
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(p[at:]) }
	u32 := func(at int) int { return int(int32(binary.LittleEndian.Uint32(p[at:]))) }
	c := &call{
		send: u64(argSend), recv: u64(argRecv), bytes: int64(u64(argBytes)), scalar: math.Float64frombits(u64(argScalar)),
		watch: u64(argAbort), limit: u64(argLimit), rank: u32(argRank), world: u32(argWorld),
		op: plugin.Op(p[argOp]), root: u32(argRoot),
		done: g.Done,
	}
	c.word = plugin.CallWord(binary.LittleEndian.Uint16(p[argOp+2:])) << 48
	for i := range maxRanks {
		c.region[i] = u64(argRegion + 8*i)
	}
	switch behind {
	case varying:
		for a := range c.counts {
			for i := range maxRanks {
				c.counts[a][i] = int64(u64(argArrays + 8*(a*maxRanks+i)))
			}
		}
	case onDevice:
		var at [7]uint64
		for i := range at {
			at[i] = u64(argArrays + 8*i)
		}
		c.readCounts([4]uint64(at[:4]), int64(at[4]), [2]int64{int64(at[5]), int64(at[6])})
	}
	return c
}

// memory returns n bytes at an address, which is the host's own.
func memory(address uint64, n int64) []byte {
	if n == 0 {
		return nil
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&address)), n)
}

func word(address uint64) *uint64 { return *(**uint64)(unsafe.Pointer(&address)) }

func half(address uint64) *uint32 { return *(**uint32)(unsafe.Pointer(&address)) }

// moved ends a wait.
func (c *call) moved() { c.since, c.spins = time.Time{}, 0 }

// over is called in every round of a wait for a peer. It reports whether the wait must be
// given up: the communicator is aborted, the limit has passed, or the driver is closed.
// From then on every wait of the call is.
func (c *call) over(peer int) bool {
	if c.lost {
		return true
	}
	runtime.Gosched()
	if c.spins++; c.spins%16 != 0 {
		return false
	}
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // the peer may be another process, and want this processor
	select {
	case <-c.done:
		c.lost = true
		return true
	default:
	}
	now := time.Now()
	if c.since.IsZero() {
		c.since = now
	}
	cudatest.Backoff(now.Sub(c.since))
	limit, kind := c.limit, plugin.FaultNone
	if c.watch != 0 {
		if atomic.LoadUint32(half(c.watch+plugin.WatchAbort)) != 0 {
			kind = plugin.FaultAborted
		}
		if limit == 0 {
			limit = atomic.LoadUint64(word(c.watch + plugin.WatchTimeout))
		}
	}
	if kind == plugin.FaultNone && limit != 0 && now.Sub(c.since) > time.Duration(limit) {
		kind = plugin.FaultTimeout
	}
	if atomic.LoadUint32(half(c.region[c.rank])) != 0 {
		c.lost = true // another kernel has given up
		return true
	}
	if kind == plugin.FaultNone {
		return false
	}
	c.fault(kind, peer)
	c.lost = true
	return true
}

// fault records why a wait was given up, at the head of the region and in the
// watch page; the first one stays.
func (c *call) fault(kind plugin.Fault, peer int) {
	c.contradict(kind, peer, [3]uint64{}, [3]uint64{})
}

// contradict is fault with what this rank and a peer say of one thing.
func (c *call) contradict(kind plugin.Fault, peer int, mine, theirs [3]uint64) {
	if !atomic.CompareAndSwapUint32(half(c.region[c.rank]), 0, uint32(kind)) {
		return
	}
	if c.watch != 0 {
		for i := range 3 {
			atomic.StoreUint64(word(c.watch+plugin.WatchFaultOwn+uint64(8*i)), mine[i])
			atomic.StoreUint64(word(c.watch+plugin.WatchFaultTheirs+uint64(8*i)), theirs[i])
		}
		atomic.StoreUint32(half(c.watch+plugin.WatchFaultPeer), uint32(int32(peer)))
		atomic.StoreUint64(word(c.watch+plugin.WatchFaultEpoch), 1)
		atomic.StoreUint32(half(c.watch+plugin.WatchFault), uint32(kind))
	}
}
