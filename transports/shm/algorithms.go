package shm

import (
	"math"
	"slices"

	"github.com/shunt-ccl/shunt/plugin"
)

// generator writes the plan of one algorithm.
type generator func(*writer)

// algorithm is a row of the table below. Every algorithm serves every size, so
// there are no limits; the costs say which is the better one.
type algorithm struct {
	name  string
	write generator
	cost  func(world int) cost
	needs need
}

// need is an algorithm's requirement of the ranks beyond shared memory.
type need uint8

const (
	nothing  need = iota
	peerRead      // every rank can read every other's memory
)

// cost is an estimate of Supports: latency + bytes / bandwidth.
type cost struct {
	latency   float64 // microseconds
	bandwidth float64 // bytes per microsecond, of Request.Bytes
}

// algorithms are the ways to do each collective in a world of two or more.
var algorithms = map[plugin.Collective][]algorithm{
	plugin.AllReduce: {
		{"one_shot", allReduceOneShot, allCost(0.3, 7000), nothing},
		{"two_shot", allReduceTwoShot, shared(2.5, 8000), nothing},
	},
	plugin.Reduce: {
		{"direct", reduceDirect, allCost(0.3, 7000), nothing},
		{"two_shot", reduceTwoShot, shared(2.5, 8000), nothing},
	},
	plugin.Broadcast: {
		{"one_shot", broadcastOneShot, perByte(0.2, 10000), nothing},
		{"pipelined", broadcastPipelined, perByte(0.5, 13500), nothing},
		{"single_copy", broadcastSingleCopy, meeting(0.7, 25000, 0.6), peerRead},
	},
	plugin.AllGather: {
		{"one_shot", allGatherOneShot(false), allCost(0.3, 6500), nothing},
		{"pipelined", allGatherPipelined(false), allCost(4.3, 7500), nothing},
		{"single_copy", allGatherSingleCopy(false), meeting(0.8, 13000, 1.7), peerRead},
	},
	plugin.AllGatherV: {
		{"one_shot", allGatherOneShot(true), allCost(0.3, 6500), nothing},
		{"pipelined", allGatherPipelined(true), allCost(4.3, 7500), nothing},
		{"single_copy", allGatherSingleCopy(true), meeting(0.8, 13000, 1.7), peerRead},
	},
	plugin.ReduceScatter: {
		{"one_shot", reduceScatterOneShot(false), allCost(0.3, 6500), nothing},
		{"pipelined", reduceScatterPipelined(false), allCost(0.9, 7500), nothing},
	},
	plugin.ReduceScatterV: {
		{"one_shot", reduceScatterOneShot(true), allCost(0.3, 6500), nothing},
		{"pipelined", reduceScatterPipelined(true), allCost(0.9, 7500), nothing},
	},
	plugin.AllToAll: {
		{"one_shot", allToAllOneShot, allCost(0.3, 6500), nothing},
		{"pipelined", allToAllPipelined, allCost(0.6, 7500), nothing},
		{"single_copy", allToAllSingleCopy, meeting(0.8, 13000, 1), peerRead},
	},
	plugin.AllToAllV: {
		{"single_copy", singleCopy(allToAllVDirect), allCost(0.5, 11000), peerRead},
		{"direct", allToAllVDirect, allCost(0.5, 6500), nothing},
	},
	plugin.Gather: {
		{"single_copy", singleCopy(gatherDirect), allCost(0.5, 16000), peerRead},
		{"direct", gatherDirect, allCost(0.5, 6500), nothing},
	},
	plugin.GatherV: {
		{"single_copy", singleCopy(gatherDirect), allCost(0.5, 16000), peerRead},
		{"direct", gatherDirect, allCost(0.5, 6500), nothing},
	},
	plugin.Scatter: {
		{"single_copy", singleCopy(scatterDirect), allCost(0.5, 16000), peerRead},
		{"direct", scatterDirect, allCost(0.5, 6500), nothing},
	},
	plugin.ScatterV: {
		{"single_copy", singleCopy(scatterDirect), allCost(0.5, 16000), peerRead},
		{"direct", scatterDirect, allCost(0.5, 6500), nothing},
	},
	plugin.Send: {
		{"single_copy", singleCopy(sendDirect), perByte(0.25, 17000), peerRead},
		{"direct", sendDirect, perByte(0.25, 9000), nothing},
	},
	plugin.Recv: {
		{"single_copy", singleCopy(recvDirect), perByte(0.25, 17000), peerRead},
		{"direct", recvDirect, perByte(0.25, 9000), nothing},
	},
	plugin.Barrier: {{"one_shot", barrierOneShot, perByte(0.3, 6000), nothing}},
}

// alone are the ways in a world of one.
var alone = map[plugin.Collective][]algorithm{
	plugin.Send:    {{"direct", sendDirect, perByte(0.25, 9000), nothing}},
	plugin.Recv:    {{"direct", recvDirect, perByte(0.25, 9000), nothing}},
	plugin.Barrier: algorithms[plugin.Barrier],
}

func init() {
	for _, c := range plugin.Collectives() {
		if _, ok := algorithms[c]; ok && alone[c] == nil {
			alone[c] = []algorithm{{"local", (*writer).Alone, perByte(0.1, 8000), nothing}}
		}
	}
}

// table returns the algorithms that can serve a request; nil if this package has
// none.
func table(req plugin.Request) []algorithm {
	if req.World == 1 {
		return alone[req.Collective]
	}
	all := algorithms[req.Collective]
	if req.PeerRead {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(a algorithm) bool { return a.needs == peerRead })
}

// The estimates below were fitted to runs of 2 and 4 ranks on a two-core
// machine with 2 MiB of second-level cache each.

// perByte returns a cost whose bytes all ranks work on side by side.
func perByte(latency, bandwidth float64) func(int) cost {
	return func(world int) cost { return cost{latency * float64(world) / 2, bandwidth} }
}

// shared returns a cost where each rank works on its share of the bytes, and all
// meet for each block.
func shared(latency, bandwidth float64) func(int) cost {
	return func(world int) cost {
		return cost{latency * float64(world) / 2, bandwidth * 2 / float64(world)}
	}
}

// allCost returns a cost where each rank touches every other rank's bytes.
func allCost(latency, bandwidth float64) func(int) cost { return crowded(latency, bandwidth, 1) }

// crowded returns a cost whose bandwidth falls with the number of peers to the given
// power: 0 where each rank reads one, 1 where it reads something of each, and
// more where the ranks are in each other's way in the caches.
func crowded(latency, bandwidth, power float64) func(int) cost {
	return func(world int) cost {
		return cost{latency * float64(world) / 2, bandwidth / math.Pow(float64(world-1), power)}
	}
}

// meeting returns a crowded cost of copies out of peers' memory, for which all ranks
// meet twice: when the offers are out, and when they are taken. With more ranks
// than processors they take turns for each.
func meeting(latency, bandwidth, power float64) func(int) cost {
	return func(world int) cost {
		c := crowded(latency, bandwidth, power)(world)
		c.latency *= float64(world - 1)
		return c
	}
}
