// Package environment reads the environment variables of this process as they are now. Where Go does not start the
// program, as in C or Python, package os has them as they were when the library was loaded, and never what the program
// sets afterwards; C has both, and what package os sets. Like getenv, nothing here may run beside a setenv of C.
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
