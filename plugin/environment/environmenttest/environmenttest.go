// Package environmenttest sets variables as a program in C or Python does, so that package os does not hear of it.
package environmenttest

// #include <stdlib.h>
import "C"

import (
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Set sets a variable by C's setenv alone until the test ends. It may not be used in parallel tests.
func Set(t *testing.T, name, value string) {
	t.Helper()
	before := os.Getenv(name)
	t.Setenv(name, before) // puts back what C and Go have now
	n, v := C.CString(name), C.CString(value)
	defer C.free(unsafe.Pointer(n))
	defer C.free(unsafe.Pointer(v))
	require.Zero(t, C.setenv(n, v, 1))
	require.Equal(t, before, os.Getenv(name), "package os has not heard of it")
}
