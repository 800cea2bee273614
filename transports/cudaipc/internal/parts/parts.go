// Package parts says which parts of a rank's region each kernel uses. A part is the slots of a protocol; those of LL,
// and all counters, are there from the start, and every other part is made when a plan first needs it.
//
// What lives here: names of kernels and of parts. The emulator of kernels proves the table; plans follow it.
package parts

import "strings"

// Set is a set of parts that are made when they are needed.
type Set uint

// The parts, in the order in which they lie in a region.
const (
	LL128 Set = 1 << iota
	Channel
	Staging

	Count = 3
	All   = 1<<Count - 1
)

// of has kernels without the dtype that some are compiled for.
var of = map[string]Set{
	"shunt_all_reduce_one_shot_ll":      0,
	"shunt_all_reduce_one_shot_ll128":   LL128,
	"shunt_all_reduce_two_shot_ll128":   LL128,
	"shunt_all_reduce_direct":           LL128,
	"shunt_all_reduce_direct_any":       LL128,
	"shunt_all_reduce_staged":           LL128 | Staging,
	"shunt_all_reduce_staged_any":       LL128 | Staging,
	"shunt_all_reduce_delivered":        0,
	"shunt_all_reduce_delivered_any":    0,
	"shunt_all_gather_ll":               0,
	"shunt_all_gather_ll128":            LL128,
	"shunt_all_gather_direct":           LL128,
	"shunt_reduce_scatter_ll":           0,
	"shunt_reduce_scatter_ll128":        LL128,
	"shunt_reduce_scatter_direct":       LL128,
	"shunt_reduce_scatter_direct_any":   LL128,
	"shunt_reduce_scatter_staged":       Staging,
	"shunt_reduce_scatter_staged_any":   Staging,
	"shunt_reduce_scatter_v_ll":         0,
	"shunt_reduce_scatter_v_ll128":      LL128,
	"shunt_reduce_scatter_v_direct":     LL128,
	"shunt_reduce_scatter_v_direct_any": LL128,
	"shunt_all_to_all_ll":               0,
	"shunt_all_to_all_ll128":            LL128,
	"shunt_all_to_all_direct":           LL128,
	"shunt_all_to_all_v":                Channel,
	"shunt_all_to_all_v_in_turns":       Channel,
	"shunt_all_to_all_v_long":           Channel,
	"shunt_all_to_all_v_on_device":      Channel,
	"shunt_broadcast_ll":                0,
	"shunt_broadcast_ll128":             Channel,
	"shunt_broadcast_direct":            Channel,
	"shunt_broadcast_chain":             Channel,
	"shunt_reduce_one_shot_ll":          0,
	"shunt_reduce_one_shot_ll128":       LL128,
	"shunt_reduce_two_shot_ll128":       LL128,
	"shunt_reduce_ll128":                Channel,
	"shunt_reduce_staged":               LL128 | Staging,
	"shunt_reduce_staged_any":           LL128 | Staging,
	"shunt_barrier":                     0,
	"shunt_gate_direct":                 0,
	"shunt_gate_staged":                 0,
	"shunt_gate_ll128":                  LL128,
	"shunt_symmetric_begin":             0,
	"shunt_symmetric_turn":              0,
	"shunt_copy":                        0,
	"shunt_signal":                      0,
	"shunt_wait":                        0,
	"shunt_window_signal":               0,
	"shunt_window_wait":                 0,
}

// dtypes are those of images that have a kernel for each.
var dtypes = []string{"int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
	"float64", "float8_e4m3", "float8_e5m2"}

// Of returns the parts that a kernel uses, at either end; all of them for a kernel that the table lacks.
func Of(kernel string) Set {
	for _, dtype := range dtypes {
		kernel = strings.TrimSuffix(kernel, "_"+dtype)
	}
	if s, known := of[kernel]; known {
		return s
	}
	return All
}
