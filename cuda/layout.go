package cuda

// #include "driver.h"
import "C"

import "unsafe"

// Launch must be laid out as sc_launch: these do not compile otherwise.
var (
	_ [unsafe.Sizeof(Launch{}) - C.sizeof_sc_launch]struct{}
	_ [C.sizeof_sc_launch - unsafe.Sizeof(Launch{})]struct{}
	_ [unsafe.Offsetof(Launch{}.Params) - unsafe.Offsetof(C.sc_launch{}.params)]struct{}
	_ [unsafe.Offsetof(C.sc_launch{}.params) - unsafe.Offsetof(Launch{}.Params)]struct{}
)
