//go:build race

package conformance_test

// The race detector makes ranks several times slower; two worlds show what it
// can see.
var worlds = []int{2, 3}

// carriedWorlds are those of the carriers beside builtin.
var carriedWorlds = worlds

// memoryWorlds are those of GPUs in memory, whose kernels are slow.
var memoryWorlds = []int{2}

// symmetricWorlds are those of the same with symmetric memory.
var symmetricWorlds = []int{3}
