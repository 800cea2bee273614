package cuda

// #include "toolkit.h"
// #include <stdlib.h>
import "C"

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// Compiler is NVRTC, the compiler of CUDA C that is a library. It makes the
// images of the kernels; nothing compiles while communicators run.
type Compiler struct{}

// LoadCompiler loads NVRTC from a file, or by a name that the dynamic linker
// finds. There is one for all: what is loaded last compiles.
func LoadCompiler(path string) (*Compiler, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var message [512]C.char
	if C.sn_load(name, &message[0], C.size_t(len(message))) != 0 {
		return nil, plugin.Errorf(plugin.Unsupported, "no CUDA runtime compiler: %s", C.GoString(&message[0]))
	}
	var major, minor C.int
	if r := C.sn_version(&major, &minor); r != 0 {
		return nil, plugin.Errorf(plugin.Device, "nvrtcVersion: %s", C.GoString(C.sn_error(r)))
	}
	return &Compiler{}, nil
}

// Compile compiles CUDA C. With ptx it returns PTX, else machine code for the
// architecture that an option names (--gpu-architecture=sm_90). An error
// carries the compiler's log.
func (c *Compiler) Compile(name, source string, ptx bool, options ...string) ([]byte, error) {
	s, n := C.CString(source), C.CString(name)
	defer C.free(unsafe.Pointer(s))
	defer C.free(unsafe.Pointer(n))
	list := make([]*C.char, len(options)+1)
	for i, o := range options {
		list[i] = C.CString(o)
		defer C.free(unsafe.Pointer(list[i]))
	}
	want := C.int(0)
	if ptx {
		want = 1
	}
	var image, log *C.char
	var bytes C.size_t
	r := C.sn_compile(s, n, &list[0], C.int(len(options)), want, &image, &bytes, &log)
	defer C.free(unsafe.Pointer(image))
	defer C.free(unsafe.Pointer(log))
	if r != 0 {
		text := ""
		if log != nil {
			text = ": " + C.GoString(log)
		}
		return nil, plugin.Errorf(plugin.Device, "compiling %s failed: %s%s", name, C.GoString(C.sn_error(r)), text)
	}
	return C.GoBytes(unsafe.Pointer(image), C.int(bytes)), nil
}
