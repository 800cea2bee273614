package nccl

// #include "nccl.h"
import "C"

import "github.com/shunt-ccl/shunt/plugin"

// rounded returns the bits of a factor in a dtype, as NCCL is given them.
func rounded(x float64, d plugin.DType) uint64 { return uint64(C.nl_round(C.double(x), C.int(d))) }
