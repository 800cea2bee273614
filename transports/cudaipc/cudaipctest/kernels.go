package cudaipctest

import (
	"strings"

	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/internal/parts"
)

// Kernels returns the kernels of every image of transports/cudaipc, by name, for
// cudatest.Options.
func Kernels() map[string]cudatest.Kernel {
	kernels := map[string]cudatest.Kernel{}
	bytes := func(run func(*call), names ...string) {
		for _, name := range names {
			kernels[name] = launch(name, plain, run)
		}
	}
	typedWith := func(behind arguments, run func(*call, plugin.DType), names ...string) {
		for _, name := range names {
			for d := plugin.Int8; d.Valid(); d++ {
				kernels[name+"_"+d.String()] = launch(name, behind, func(c *call) { run(c, d) })
			}
		}
	}
	typed := func(run func(*call, plugin.DType), names ...string) { typedWith(plain, run, names...) }
	typed(allReduce, "shunt_all_reduce_one_shot_ll", "shunt_all_reduce_one_shot_ll128", "shunt_all_reduce_two_shot_ll128")
	typed(allReduceDirect, "shunt_all_reduce_direct", "shunt_all_reduce_direct_any")
	typed(allReduceStaged, "shunt_all_reduce_staged", "shunt_all_reduce_staged_any")
	typed(reduce, "shunt_reduce_one_shot_ll", "shunt_reduce_one_shot_ll128", "shunt_reduce_two_shot_ll128")
	typed(reduceByChannels, "shunt_reduce_ll128")
	typed(reduceDirect, "shunt_reduce_direct", "shunt_reduce_staged", "shunt_reduce_staged_any")
	typed(reduceScatter, "shunt_reduce_scatter_ll", "shunt_reduce_scatter_ll128", "shunt_reduce_scatter_staged",
		"shunt_reduce_scatter_staged_any")
	typed(reduceScatterDirect, "shunt_reduce_scatter_direct", "shunt_reduce_scatter_direct_any")
	typedWith(varying, reduceScatterV, "shunt_reduce_scatter_v_ll", "shunt_reduce_scatter_v_ll128")
	typedWith(varying, reduceScatterVDirect, "shunt_reduce_scatter_v_direct", "shunt_reduce_scatter_v_direct_any")
	bytes(gather(false), "shunt_all_gather_ll", "shunt_all_gather_ll128")
	bytes(gatherDirect(false), "shunt_all_gather_direct")
	bytes(gather(true), "shunt_all_to_all_ll", "shunt_all_to_all_ll128")
	bytes(gatherDirect(true), "shunt_all_to_all_direct")
	bytes(broadcast, "shunt_broadcast_ll")
	bytes(broadcastByChannels, "shunt_broadcast_ll128")
	bytes(broadcastDirect, "shunt_broadcast_direct", "shunt_broadcast_chain")
	bytes(barrier, "shunt_barrier")
	// The kernel behind it waits all the same.
	bytes(func(*call) {}, "shunt_gate_direct", "shunt_gate_staged", "shunt_gate_ll128")
	bytes(symmetricBegin, "shunt_symmetric_begin")
	bytes(symmetricTurn, "shunt_symmetric_turn")
	typed(allReduceDelivered, "shunt_all_reduce_delivered", "shunt_all_reduce_delivered_any")
	bytes(put, "shunt_copy")
	bytes(windowSignal, "shunt_window_signal")
	bytes(windowWait, "shunt_window_wait")
	vary := func(behind arguments, run func(*call), names ...string) {
		for _, name := range names {
			kernels[name] = launch(name, behind, run)
		}
	}
	vary(varying, func(c *call) { c.allToAllV(false) }, "shunt_all_to_all_v", "shunt_all_to_all_v_in_turns")
	vary(varying, func(c *call) { c.allToAllV(true) }, "shunt_all_to_all_v_long")
	vary(onDevice, allToAllVOnDevice, "shunt_all_to_all_v_on_device")
	return kernels
}

// launch makes a kernel of what one call does. The name says where its pipes lie.
func launch(name string, behind arguments, run func(*call)) cudatest.Kernel {
	part, compares, waits := parts.Of(name), comparesCalls(name), waitsOnly(name)
	return func(g cudatest.Grid) {
		c := newCall(g, behind)
		c.pipes = pipesIn(part, c.world)
		switch {
		case waits:
			c.agree(0)
		case compares:
			c.agree(c.bytes)
		}
		if !c.lost {
			run(c)
		}
	}
}

// waitsOnly reports whether a kernel moves nothing and compares what is called.
func waitsOnly(name string) bool {
	return name == "shunt_barrier" || name == "shunt_symmetric_begin"
}

// comparesCalls reports whether a kernel compares what is called, as in kernels/call.cuh. Those of channels compare
// lengths alone, and those that meet do not here: they would have to be counted as begun before.
func comparesCalls(name string) bool {
	for _, other := range []string{"all_to_all_v", "broadcast_ll128", "reduce_ll128", "all_reduce_delivered"} {
		if strings.HasPrefix(name, "shunt_"+other) {
			return false
		}
	}
	for _, meets := range []string{"_direct", "_staged", "_chain"} {
		if strings.Contains(name, meets) {
			return false
		}
	}
	for _, collective := range []string{"all_reduce", "reduce", "broadcast", "all_gather", "all_to_all"} {
		if strings.HasPrefix(name, "shunt_"+collective) {
			return true
		}
	}
	return false
}
