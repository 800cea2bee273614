package main

// #cgo LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
//
// // nvFatbin.h's functions, by their names there.
// static struct {
//   int (*create)(void **, const char *const *, size_t);
//   int (*add_cubin)(void *, const void *, size_t, const char *, const char *);
//   int (*add_ptx)(void *, const char *, size_t, const char *, const char *, const char *);
//   int (*size)(void *, size_t *);
//   int (*get)(void *, void *);
//   int (*destroy)(void **);
//   const char *(*error)(int);
// } fatbin;
//
// static const char *load(const char *path) {
//   static const char *const names[] = {"nvFatbinCreate", "nvFatbinAddCubin", "nvFatbinAddPTX", "nvFatbinSize",
//                                       "nvFatbinGet", "nvFatbinDestroy", "nvFatbinGetErrorString"};
//   void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
//   void **slots = (void **)&fatbin;
//   if (!library) return dlerror();
//   for (size_t i = 0; i < sizeof names / sizeof *names; i++)
//     if (!(slots[i] = dlsym(library, names[i]))) return dlerror();
//   return NULL;
// }
//
// // LZ4, which the drivers of all CUDA 12 read; the denser modes need 12.4.
// static int create(void **handle) {
//   static const char *const options[] = {"-64", "-compress-all", "-compress-mode=speed"};
//   return fatbin.create(handle, options, sizeof options / sizeof *options);
// }
// static int add(void *handle, int ptx, const void *code, size_t bytes, const char *architecture, const char *name) {
//   return ptx ? fatbin.add_ptx(handle, code, bytes, architecture, name, "") : fatbin.add_cubin(handle, code, bytes,
// architecture, name); }
// static int size(void *handle, size_t *bytes) { return fatbin.size(handle, bytes); }
// static int get(void *handle, void *to) { return fatbin.get(handle, to); }
// static void destroy(void *handle) { fatbin.destroy(&handle); }
// static const char *text(int result) { return fatbin.error(result); }
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// A part is the code for one architecture.
type part struct {
	architecture string // "90"
	ptx          bool
	code         []byte
}

// pack makes one fatbin of all parts.
func pack(library string, parts []part) ([]byte, error) {
	path := C.CString(library)
	defer C.free(unsafe.Pointer(path))
	if why := C.load(path); why != nil {
		return nil, errors.New(C.GoString(why))
	}
	var handle unsafe.Pointer
	if r := C.create(&handle); r != 0 {
		return nil, failed("nvFatbinCreate", r)
	}
	defer C.destroy(handle)
	name := C.CString("kernels")
	defer C.free(unsafe.Pointer(name))
	for _, p := range parts {
		architecture, ptx := C.CString(p.architecture), C.int(0)
		defer C.free(unsafe.Pointer(architecture))
		if p.ptx {
			ptx = 1
		}
		if r := C.add(handle, ptx, unsafe.Pointer(&p.code[0]), C.size_t(len(p.code)), architecture, name); r != 0 {
			return nil, failed("adding the code for "+p.architecture, r)
		}
	}
	var bytes C.size_t
	if r := C.size(handle, &bytes); r != 0 {
		return nil, failed("nvFatbinSize", r)
	}
	image := make([]byte, bytes)
	if r := C.get(handle, unsafe.Pointer(&image[0])); r != 0 {
		return nil, failed("nvFatbinGet", r)
	}
	return image, nil
}

func failed(what string, result C.int) error {
	return fmt.Errorf("%s: %s", what, C.GoString(C.text(result)))
}
