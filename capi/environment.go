package main

// extern char **environ;
// static char **shunt_environ(void) { return environ; }
import "C"

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/internal/environment"
)

// The program's variables count as they are when they are read. Like getenv, this may not run beside a setenv of
// another thread.
func init() {
	environment.Use(func() []string {
		var list []string
		for p := C.shunt_environ(); p != nil && *p != nil; {
			list = append(list, C.GoString(*p))
			p = (**C.char)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p)))
		}
		return list
	})
}
