package executor

/*
#include <stdlib.h>
#include "reduce.h"
*/
import "C"

import "unsafe"

// useInstructions chooses the instruction set of reductions, "baseline", "avx2"
// or "avx512", "" for the best, and reports whether the processor has it. No run
// may be in flight.
func useInstructions(name string) bool {
	if name == "" {
		return C.sx_reduce_use(nil) == 0
	}
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return C.sx_reduce_use(c) == 0
}
