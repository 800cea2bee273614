package shm

import "github.com/shunt-ccl/shunt/plugin"

// generator writes the plan of one algorithm.
type generator func(*writer)

// algorithm is a row of the table below. Every algorithm serves every size, so
// there are no limits; the costs say which is the better one.
type algorithm struct {
	name  string
	write generator
	cost  func(world int) cost
}

// cost is what Supports estimates with: latency + bytes / bandwidth.
type cost struct {
	latency   float64 // microseconds
	bandwidth float64 // bytes per microsecond, of Request.Bytes
}

// algorithms are the ways to do each collective in a world of two or more.
var algorithms = map[plugin.Collective][]algorithm{
	plugin.AllReduce: {
		{"one_shot", allReduceOneShot, allCost(0.3, 7000)},
		{"two_shot", allReduceTwoShot, shared(2.5, 8000)},
	},
	plugin.Reduce: {
		{"direct", reduceDirect, allCost(0.3, 7000)},
		{"two_shot", reduceTwoShot, shared(2.5, 8000)},
	},
	plugin.Broadcast: {
		{"one_shot", broadcastOneShot, perByte(0.25, 10000)},
		{"pipelined", broadcastPipelined, perByte(0.35, 13000)},
	},
	plugin.AllGather: {
		{"one_shot", allGatherOneShot(false), allCost(0.3, 6500)},
		{"pipelined", allGatherPipelined(false), allCost(0.6, 7500)},
	},
	plugin.AllGatherV: {
		{"one_shot", allGatherOneShot(true), allCost(0.3, 6500)},
		{"pipelined", allGatherPipelined(true), allCost(0.6, 7500)},
	},
	plugin.ReduceScatter: {
		{"one_shot", reduceScatterOneShot(false), allCost(0.3, 6500)},
		{"pipelined", reduceScatterPipelined(false), allCost(0.9, 7500)},
	},
	plugin.ReduceScatterV: {
		{"one_shot", reduceScatterOneShot(true), allCost(0.3, 6500)},
		{"pipelined", reduceScatterPipelined(true), allCost(0.9, 7500)},
	},
	plugin.AllToAll: {
		{"one_shot", allToAllOneShot, allCost(0.3, 6500)},
		{"pipelined", allToAllPipelined, allCost(0.6, 7500)},
	},
	plugin.AllToAllV: {{"direct", allToAllVDirect, allCost(0.5, 6500)}},
	plugin.Gather:    {{"direct", gatherDirect, allCost(0.5, 6500)}},
	plugin.GatherV:   {{"direct", gatherDirect, allCost(0.5, 6500)}},
	plugin.Scatter:   {{"direct", scatterDirect, allCost(0.5, 6500)}},
	plugin.ScatterV:  {{"direct", scatterDirect, allCost(0.5, 6500)}},
	plugin.Send:      {{"direct", sendDirect, perByte(0.25, 9000)}},
	plugin.Recv:      {{"direct", recvDirect, perByte(0.25, 9000)}},
	plugin.Barrier:   {{"one_shot", barrierOneShot, perByte(0.3, 6000)}},
}

// alone are the ways in a world of one.
var alone = map[plugin.Collective][]algorithm{
	plugin.Send:    algorithms[plugin.Send],
	plugin.Recv:    algorithms[plugin.Recv],
	plugin.Barrier: algorithms[plugin.Barrier],
}

func init() {
	for _, c := range plugin.Collectives() {
		if _, ok := algorithms[c]; ok && alone[c] == nil {
			alone[c] = []algorithm{{"local", local, perByte(0.1, 8000)}}
		}
	}
}

// table is the algorithms of a collective; nil if this package has none.
func table(c plugin.Collective, world int) []algorithm {
	if world == 1 {
		return alone[c]
	}
	return algorithms[c]
}

// The estimates below were fitted to runs of 2 and 4 ranks on a two-core
// machine with 2 MiB of second-level cache each.

// perByte is a cost whose bytes all ranks work on side by side.
func perByte(latency, bandwidth float64) func(int) cost {
	return func(world int) cost { return cost{latency * float64(world) / 2, bandwidth} }
}

// shared is a cost where each rank works on its share of the bytes, and all
// meet for each block.
func shared(latency, bandwidth float64) func(int) cost {
	return func(world int) cost {
		return cost{latency * float64(world) / 2, bandwidth * 2 / float64(world)}
	}
}

// allCost is a cost where each rank touches every other rank's bytes.
func allCost(latency, bandwidth float64) func(int) cost {
	return func(world int) cost {
		return cost{latency * float64(world) / 2, bandwidth / float64(world-1)}
	}
}
