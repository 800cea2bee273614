package cudaipc

import (
	"math"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

// algorithm is a way to do a collective: a kernel, its grid, and the messages
// it is best for. Limits and costs were measured on 2 and 4 H200 and H100, in graphs, and follow from
// those of 4 among other numbers of ranks; see load. Bytes are those of plugin.Request.
type algorithm struct {
	collective plugin.Collective
	name       string
	image      string
	kernel     string // with typed, the dtype's name follows
	typed      bool
	grid       grid
	min, max   int64
	latency    float64 // microseconds
	bandwidth  float64 // bytes per microsecond
	worlds     worlds
}

// worlds is in which worlds an algorithm is offered, with these limits and costs.
type worlds int

const (
	all  worlds = iota
	two         // of two ranks
	more        // of three and more
)

func (w worlds) has(world int) bool { return w == all || (w == two) == (world == 2) }

// grid says how many blocks and threads a kernel is launched with.
type grid int

const (
	packets     grid = iota // LL: a thread for each 8 bytes of a message
	units                   // LL128: a warp for each unitBytes
	unitsPart               // LL128 on 1/world of a message
	unitsRooted             // LL128 on a share of all ranks but the root, among two of both
	full                    // all blocks, all threads
	few                     // as few blocks as carry all but 2 % of it, all threads
	some                    // as few, and twice as many for the longest
	half                    // half of the blocks, and all for the longest; all threads
	staging                 // among three and more: from half of the blocks to all, all threads
	pairs                   // all_to_all_v: blocks for each peer
	blocks                  // reduce_scatter_v: as the kernel of reduce_scatter that suits the longest block
	roots                   // reduce_scatter_v: a reduce to each rank; costs are those of one
	owners                  // broadcast: blocks for each rank but the root, as many as its units need
	reducers                // reduce: blocks for each rank but the root
	single                  // one warp
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// algorithms are tried by their costs where the limits of two overlap, and what reduce_scatter_v is made of in their
// order.
var algorithms = []algorithm{
	{plugin.AllReduce, "one_shot_ll", "all_reduce", "shunt_all_reduce_one_shot_ll", true, packets, 0, 32 * kib, 2.3, 36000,
		more},
	{plugin.AllReduce, "one_shot_ll", "all_reduce", "shunt_all_reduce_one_shot_ll", true, packets, 0, 32 * kib, 2.1, 60000,
		two},
	{plugin.AllReduce, "one_shot_ll128", "all_reduce", "shunt_all_reduce_one_shot_ll128", true, units, 16 * kib, 256 * kib,
		2.9, 80000, more},
	{plugin.AllReduce, "one_shot_ll128", "all_reduce", "shunt_all_reduce_one_shot_ll128", true, units, 16 * kib, 512 * kib,
		2.6, 275000, two},
	{plugin.AllReduce, "two_shot_ll128", "all_reduce", "shunt_all_reduce_two_shot_ll128", true, unitsPart, 128 * kib, 0,
		4.2, 176000, more},
	{plugin.AllReduce, "two_shot_ll128", "all_reduce", "shunt_all_reduce_two_shot_ll128", true, unitsPart, 128 * kib, 0,
		4.6, 265000, two},
	{plugin.AllReduce, "direct", "all_reduce", "shunt_all_reduce_direct", true, few, 4 * mib, 0, 8.7, 337000, two},
	{plugin.AllReduce, "staged", "all_reduce", "shunt_all_reduce_staged", true, full, 160 * mib, 0, 17.5, 357000, two},
	{plugin.AllReduce, "staged", "all_reduce", "shunt_all_reduce_staged", true, staging, 4 * mib, 0, 11, 229000, more},

	{plugin.AllGather, "ll", "all_gather", "shunt_all_gather_ll", false, packets, 0, 16 * kib, 2.35, 14000, more},
	{plugin.AllGather, "ll", "all_gather", "shunt_all_gather_ll", false, packets, 0, 16 * kib, 2.1, 42000, two},
	{plugin.AllGather, "ll128", "all_gather", "shunt_all_gather_ll128", false, units, 4 * kib, 0, 2.9, 81000, more},
	{plugin.AllGather, "ll128", "all_gather", "shunt_all_gather_ll128", false, units, 4 * kib, 0, 2.3, 260000, two},
	{plugin.AllGather, "direct", "all_gather", "shunt_all_gather_direct", false, half, 1 * mib, 0, 12.5, 114000, more},
	{plugin.AllGather, "direct", "all_gather", "shunt_all_gather_direct", false, some, 1 * mib, 0, 12, 358000, two},

	{plugin.ReduceScatter, "ll", "reduce_scatter", "shunt_reduce_scatter_ll", true, packets, 0, 32 * kib, 2.5, 36000, all},
	{plugin.ReduceScatter, "ll128", "reduce_scatter", "shunt_reduce_scatter_ll128", true, units, 16 * kib, 2*mib - 1, 3.1,
		75000, more},
	{plugin.ReduceScatter, "ll128", "reduce_scatter", "shunt_reduce_scatter_ll128", true, units, 16 * kib, 4*mib - 1, 3.1,
		260000, two},
	{plugin.ReduceScatter, "staged", "reduce_scatter", "shunt_reduce_scatter_staged", true, half, 2 * mib, 0, 12.7, 111000,
		more},
	{plugin.ReduceScatter, "staged", "reduce_scatter", "shunt_reduce_scatter_staged", true, full, 80 * mib, 0, 18.3,
		344600, two},
	{plugin.ReduceScatter, "direct", "reduce_scatter", "shunt_reduce_scatter_direct", true, full, 16 * mib, 0, 18.3, 104800,
		more},
	{plugin.ReduceScatter, "direct", "reduce_scatter", "shunt_reduce_scatter_direct", true, few, 4 * mib, 0, 9.2, 324000,
		two},

	{plugin.ReduceScatterV, "blocks", "reduce_scatter", "shunt_reduce_scatter_v", true, blocks, 0, 0, 3.1, 90000, more},
	{plugin.ReduceScatterV, "blocks", "reduce_scatter", "shunt_reduce_scatter_v", true, blocks, 0, 0, 3.1, 300000, two},
	{plugin.ReduceScatterV, "reduces", "reduce", "", true, roots, 0, 0, 2.4, 309000, all},

	{plugin.AllToAll, "ll", "all_to_all", "shunt_all_to_all_ll", false, packets, 0, 32 * kib, 2.6, 33800, more},
	{plugin.AllToAll, "ll", "all_to_all", "shunt_all_to_all_ll", false, packets, 0, 32 * kib, 2.1, 30000, two},
	{plugin.AllToAll, "ll128", "all_to_all_v", "shunt_all_to_all_v", false, pairs, 256, 0, 2.6, 79000, more},
	{plugin.AllToAll, "ll128", "all_to_all", "shunt_all_to_all_ll128", false, units, 4 * kib, 0, 2.3, 180000, two},
	{plugin.AllToAll, "direct", "all_to_all", "shunt_all_to_all_direct", false, full, 2 * mib, 0, 8, 114000, more},
	{plugin.AllToAll, "direct", "all_to_all", "shunt_all_to_all_direct", false, full, 2 * mib, 0, 10.3, 365500, two},

	{plugin.Broadcast, "ll", "broadcast", "shunt_broadcast_ll", false, packets, 0, 64 * kib, 2.2, 33000, all},
	{plugin.Broadcast, "ll128", "broadcast", "shunt_broadcast_ll128", false, owners, 32 * kib, 0, 3.1, 285000, more},
	{plugin.Broadcast, "ll128", "broadcast", "shunt_broadcast_ll128", false, owners, 4 * kib, 0, 2.35, 235000, two},
	{plugin.Broadcast, "direct", "broadcast", "shunt_broadcast_direct", false, full, 16 * mib, 0, 20, 345000, more},
	{plugin.Broadcast, "chain", "broadcast", "shunt_broadcast_chain", false, full, 96 * mib, 0, 44, 354700, more},
	{plugin.Broadcast, "direct", "broadcast", "shunt_broadcast_direct", false, full, 1 * mib, 0, 11.1, 366000, two},

	{plugin.Reduce, "one_shot_ll", "reduce", "shunt_reduce_one_shot_ll", true, packets, 0, 64 * kib, 2.2, 36000, all},
	{plugin.Reduce, "one_shot_ll128", "reduce", "shunt_reduce_one_shot_ll128", true, units, 64 * kib, 256 * kib, 2.9,
		80000, more},
	{plugin.Reduce, "one_shot_ll128", "reduce", "shunt_reduce_one_shot_ll128", true, units, 64 * kib, 256 * kib, 2.6,
		220000, two},
	{plugin.Reduce, "two_shot_ll128", "reduce", "shunt_reduce_two_shot_ll128", true, unitsRooted, 256 * kib, 64 * mib, 5,
		302000, more},
	{plugin.Reduce, "two_shot_ll128", "reduce", "shunt_reduce_two_shot_ll128", true, unitsRooted, 256 * kib, 16 * mib, 3.6,
		287000, two},
	{plugin.Reduce, "staged", "reduce", "shunt_reduce_staged", true, full, 8 * mib, 0, 33, 334000, more},
	{plugin.Reduce, "staged", "reduce", "shunt_reduce_staged", true, full, 8 * mib, 0, 15.5, 352500, two},

	{plugin.AllToAllV, "ll128", "all_to_all_v", "shunt_all_to_all_v", false, pairs, 0, 0, 2.55, 110000, all},
	{plugin.AllGatherV, "ll128", "all_to_all_v", "shunt_all_to_all_v", false, pairs, 0, 0, 2.55, 110000, more},
	{plugin.AllGatherV, "ll128", "all_to_all_v", "shunt_all_to_all_v", false, pairs, 0, 0, 2.55, 166000, two},
	{plugin.Gather, "ll128", "all_to_all_v", "shunt_all_to_all_v", false, pairs, 0, 0, 2.55, 110000, more},
	{plugin.Gather, "ll128", "all_to_all_v", "shunt_all_to_all_v", false, pairs, 0, 0, 2.55, 310000, two},
	{plugin.GatherV, "ll128", "all_to_all_v", "shunt_all_to_all_v", false, pairs, 0, 0, 2.55, 110000, all},
	{plugin.Scatter, "ll128", "all_to_all_v", "shunt_all_to_all_v", false, pairs, 0, 0, 2.55, 122000, more},
	{plugin.Scatter, "ll128", "all_to_all_v", "shunt_all_to_all_v", false, pairs, 0, 0, 2.55, 357000, two},
	{plugin.ScatterV, "ll128", "all_to_all_v", "shunt_all_to_all_v", false, pairs, 0, 0, 2.55, 110000, all},
	{plugin.Send, "ll128", "all_to_all_v", "shunt_all_to_all_v", false, pairs, 0, 0, 2.55, 330000, all},
	{plugin.Recv, "ll128", "all_to_all_v", "shunt_all_to_all_v", false, pairs, 0, 0, 2.55, 330000, all},

	{plugin.Barrier, "ll", "barrier", "shunt_barrier", false, single, 0, 0, 3.4, 1e9, all},
}

// spreads reports whether an algorithm's kernel gains by places of its own for its
// blocks; those that pull do not.
func (a algorithm) spreads() bool {
	return a.name == "staged" || a.name == "chain" || (a.name == "direct" && !a.collective.Reduces())
}

// hasAny reports whether an algorithm's kernel, which is for memory that is aligned, has a twin for any: one that puts
// vectors together, which in the same kernel would cost half of its speed. Dtypes of little traffic have none: their
// images would be half as large again. Their kernels take any memory, several times as slowly.
func (a algorithm) hasAny(d plugin.DType) bool {
	return isHot(d) && a.typed && (a.name == "direct" || a.name == "staged")
}

// isHot reports whether a dtype is one of most traffic, which has kernels that others lack.
func isHot(d plugin.DType) bool {
	return d == plugin.Float32 || d == plugin.Float16 || d == plugin.Bfloat16
}

// anySuffix ends the twin's name, before the dtype.
const anySuffix = "_any"

// longMessage is is_long of kernels/all_to_all_v.cu: from so many bytes on a pair needs the kernel that makes offers.
func longMessage(world int) int64 {
	if world == 2 {
		return 7 * mib / 4
	}
	return 5 * mib / 4
}

// find returns the algorithm of that name for a collective in a world.
func find(c plugin.Collective, name string, world int) (algorithm, bool) {
	for _, a := range algorithms {
		if a.collective == c && a.name == name && a.worlds.has(world) {
			return a, true
		}
	}
	return algorithm{}, false
}

// load returns how many times what it is among four ranks the busiest link carries among
// world of them: a part for every peer, or, where owners combine, twice what a rank does
// not own itself.
func load(c plugin.Collective, name string, world int) float64 {
	peers := float64(world-1) / 3
	switch c {
	case plugin.AllGather, plugin.ReduceScatter, plugin.AllToAll, plugin.Gather, plugin.Scatter:
		return peers
	case plugin.ReduceScatterV:
		if name == "blocks" {
			return peers
		}
	case plugin.AllReduce, plugin.Reduce:
		switch {
		case strings.HasPrefix(name, "one_shot"):
			return peers
		case c == plugin.AllReduce:
			return peers * 4 / float64(world)
		}
	case plugin.Broadcast:
		if name == "ll128" {
			return math.Sqrt(peers) // as measured: owners have fewer blocks each, and pass on smaller parts
		}
	}
	return 1
}

// Supports offers the algorithms of a collective among GPUs of one host.
func (t Transport) Supports(r plugin.Request) plugin.Support {
	no := func(reason string) plugin.Support { return plugin.Support{Reason: reason} }
	switch {
	case r.Memory != plugin.MemoryKindCuda:
		return no("cudaipc moves CUDA memory only")
	case r.Hosts > 1:
		return no("cudaipc reaches ranks of one host only")
	case r.World > maxRanks:
		return no("cudaipc serves at most 8 ranks of a host")
	case r.DeviceCounts && r.Collective != plugin.AllToAllV:
		return no("cudaipc takes counts from device memory in all_to_all_v only")
	}
	if oneSided(r.Collective) {
		return plugin.Support{Algorithms: []plugin.Algorithm{{Name: windowName, Latency: 3, Bandwidth: 380000}}}
	}
	if r.World == 1 {
		if !local(r.Collective) {
			return no("cudaipc does not do this operation")
		}
		return plugin.Support{Algorithms: []plugin.Algorithm{{Name: localName, Latency: 2, Bandwidth: 1e6}}}
	}
	var s plugin.Support
	for _, a := range algorithms {
		if a.collective == r.Collective && a.worlds.has(r.World) && (a.grid != blocks || isHot(r.DType)) {
			if a.grid == roots {
				a.latency *= float64(r.World)
				a.bandwidth /= float64(r.World)
			}
			if r.World > 2 {
				a.bandwidth /= load(a.collective, a.name, r.World)
			}
			s.Algorithms = append(s.Algorithms, plugin.Algorithm{
				Name: a.name, MinBytes: a.min, MaxBytes: a.max, Latency: a.latency, Bandwidth: a.bandwidth,
			})
		}
	}
	s.Algorithms = append(s.Algorithms, copied(r)...)
	if len(s.Algorithms) == 0 {
		return no("cudaipc does not do this operation")
	}
	return s
}
