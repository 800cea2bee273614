package search

// #include <stdlib.h>
import "C"

import "unsafe"

// Getenv reads a variable as it is now. Package os has those of the moment when Go was loaded, which in a program in C
// or Python is before the program may set some.
func Getenv(name string) string {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return C.GoString(C.getenv(text))
}
