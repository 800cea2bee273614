//go:build !race

package conformance_test

import "github.com/shunt-ccl/shunt/tests/conformance"

var worlds = conformance.DefaultWorlds()

// carriedWorlds are those of the carriers beside builtin.
var carriedWorlds = conformance.CarriedWorlds()

// memoryWorlds are those of GPUs in memory, whose kernels are slow.
var memoryWorlds = []int{1, 3}

// symmetricWorlds are those of the same with symmetric memory: of two ranks, which
// have costs of their own, and of more.
var symmetricWorlds = []int{2, 4}
