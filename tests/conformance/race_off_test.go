//go:build !race

package conformance_test

import "github.com/shunt-ccl/shunt/tests/conformance"

var worlds = conformance.DefaultWorlds()

// memoryWorlds are those of GPUs in memory, whose kernels are slow.
var memoryWorlds = []int{1, 3}
