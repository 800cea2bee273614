package shared

// #include <stdlib.h>
// #include <string.h>
// #include "table.h"
import "C"

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// The functions below take C structures as the bytes they consist of, for
// fuzzing: cgo cannot be used in test files. Pointers among the bytes are
// replaced, as an object in this process can always pass wild ones.

func supportOfBytes(b []byte) (plugin.Support, error) {
	var c C.shunt_support
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&c)), unsafe.Sizeof(c)), b)
	return support(&c)
}

func regionOfBytes(b []byte) (plugin.Region, error) {
	var c C.shunt_region
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&c)), unsafe.Sizeof(c)), b)
	return region(&c)
}

// arrayBytes holds any array of a plan that is within its limit.
const arrayBytes = 1 << 20

// planOfBytes makes a plan whose arrays all lie in memory that repeats fill.
// Kernels hold pointers themselves and are left out.
func planOfBytes(head, fill []byte) (*plugin.Plan, error) {
	var c C.shunt_plan
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&c)), unsafe.Sizeof(c)), head)
	memory := C.calloc(1, arrayBytes)
	defer C.free(memory)
	if len(fill) > 0 {
		for m := unsafe.Slice((*byte)(memory), arrayBytes); len(m) > 0; m = m[copy(m, fill):] {
		}
	}
	c.consts, c.refs = (*C.int64_t)(memory), (*C.shunt_ref)(memory)
	c.steps, c.tracks = (*C.shunt_step)(memory), (*C.shunt_track)(memory)
	c.args, c.natives = (*C.shunt_arg)(memory), (*C.shunt_native)(memory)
	c.kernels, c.count_kernels = nil, 0
	return plan(&c, "fuzz")
}
