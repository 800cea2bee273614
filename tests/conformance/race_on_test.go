//go:build race

package conformance_test

import "github.com/shunt-ccl/shunt/plugin"

// The race detector makes ranks several times slower; two worlds show what it
// can see.
var worlds = []int{2, 3}

// carriedWorlds are the sizes of worlds for the carriers beside builtin.
var carriedWorlds = worlds

// memoryWorlds are the sizes of worlds of GPUs in memory, whose kernels are slow.
var memoryWorlds = []int{2}

// symmetricWorlds are the same sizes for symmetric memory.
var symmetricWorlds = []int{3}

// dtypes are the types of elements. The detector sees how goroutines share memory, which no type changes: one stands
// for all. -conformance.full has all.
var dtypes = []plugin.DType{plugin.Float32}
