package cuda

// #include "driver.h"
import "C"

import "unsafe"

// Launch and Work must be laid out as sc_kernel_launch and sc_work: these do not compile otherwise.
var (
	_ [unsafe.Sizeof(Launch{}) - C.sizeof_sc_kernel_launch]struct{}
	_ [C.sizeof_sc_kernel_launch - unsafe.Sizeof(Launch{})]struct{}
	_ [unsafe.Offsetof(Launch{}.Params) - unsafe.Offsetof(C.sc_kernel_launch{}.params)]struct{}
	_ [unsafe.Offsetof(C.sc_kernel_launch{}.params) - unsafe.Offsetof(Launch{}.Params)]struct{}
	_ [unsafe.Sizeof(Work{}) - C.sizeof_sc_work]struct{}
	_ [C.sizeof_sc_work - unsafe.Sizeof(Work{})]struct{}
	_ [unsafe.Offsetof(Work{}.Params) - unsafe.Offsetof(C.sc_work{}.params)]struct{}
	_ [unsafe.Offsetof(C.sc_work{}.params) - unsafe.Offsetof(Work{}.Params)]struct{}
	_ [unsafe.Offsetof(Work{}.Bytes) - unsafe.Offsetof(C.sc_work{}.bytes)]struct{}
	_ [unsafe.Offsetof(C.sc_work{}.bytes) - unsafe.Offsetof(Work{}.Bytes)]struct{}
)
