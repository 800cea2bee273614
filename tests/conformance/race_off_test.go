//go:build !race

package conformance_test

import (
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/conformance"
)

var worlds = conformance.DefaultWorlds()

// carriedWorlds are the sizes of worlds for the carriers beside builtin.
var carriedWorlds = conformance.CarriedWorlds()

// memoryWorlds are the sizes of worlds of GPUs in memory, whose kernels are slow.
var memoryWorlds = []int{1, 3}

// symmetricWorlds are the same sizes for symmetric memory: of two ranks, which have costs
// of their own, and of more.
var symmetricWorlds = []int{2, 4}

// dtypes are the types of elements: all.
var dtypes []plugin.DType
