// Package rawload is dlopen as it is, for a test that shows what happens
// without the checks of package shared. Nothing else may use it.
package rawload

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
// static int load(const char *path, const char *symbol) {
//   void (*ready)(void);
//   void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
//   if (handle == NULL) return 0;
//   *(void **)&ready = dlsym(handle, symbol);
//   if (ready == NULL) return 0;
//   ready();
//   return 1;
// }
import "C"

import "unsafe"

// Load loads a Go shared object and waits until its runtime is up.
func Load(path, ready string) bool {
	p, r := C.CString(path), C.CString(ready)
	defer C.free(unsafe.Pointer(p))
	defer C.free(unsafe.Pointer(r))
	return C.load(p, r) != 0
}
