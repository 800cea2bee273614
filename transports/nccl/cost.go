package nccl

import "github.com/shunt-ccl/shunt/plugin"

// cost is an estimate: latency in microseconds, bandwidth in bytes per microsecond of plugin.Request's bytes.
type cost struct{ latency, bandwidth float64 }

// costs are the measured times of 2 and of 4 H200 over NVLink in graphs, NCCL 2.28 without registered memory, as lines
// through 2 MiB and 1 GiB (bench/data/collectives.csv). Worlds between and beyond have those of 4.
var costs = map[plugin.Collective][2]cost{
	plugin.AllReduce:     {{19, 328000}, {26, 238000}},
	plugin.Reduce:        {{22, 371000}, {35, 362000}},
	plugin.Broadcast:     {{22, 365000}, {35, 360000}},
	plugin.AllGather:     {{20, 274000}, {24, 112000}},
	plugin.ReduceScatter: {{20, 274000}, {24, 110000}},
	plugin.AllToAll:      {{20, 355000}, {24, 110000}},
	plugin.AllGatherV:    {{36, 133000}, otherwise[1]}, // of 2 on H100; 4 were not measured

	plugin.ReduceScatterV: {{27, 364000}, otherwise[1]}, // through 32 MiB and 1 GiB, one of the blocks having two thirds
}

// otherwise is the estimate of the rest, which are made of sends and receives.
var otherwise = [2]cost{{24, 250000}, {30, 100000}}

// acrossHosts is a guess of what a network carries, where no other transport reaches.
var acrossHosts = cost{60, 20000}

func costOf(c plugin.Collective, world, hosts int) cost {
	if hosts > 1 {
		return acrossHosts
	}
	line, known := costs[c]
	if !known {
		line = otherwise
	}
	if world <= 2 {
		return line[0]
	}
	return line[1]
}
