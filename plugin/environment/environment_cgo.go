//go:build cgo

package environment

// #include <stdlib.h>
// extern char **environ;
// static char **variables(void) { return environ; }
import "C"

import "unsafe"

// All returns all variables, "NAME=value" each. The caller owns them.
func All() []string {
	var list []string
	for p := C.variables(); p != nil && *p != nil; {
		list = append(list, C.GoString(*p))
		p = (**C.char)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p)))
	}
	return list
}

// Get returns the value of a variable, or "".
func Get(name string) string {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return C.GoString(C.getenv(text)) // "" of a null pointer
}
