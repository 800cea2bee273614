package cuda

// #include "driver.h"
// #include <stdlib.h>
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

func (d *driver) LoadModule(ctx Context, image []byte) (Module, error) {
	if len(image) == 0 {
		return 0, plugin.Errorf(plugin.InvalidArgument, "cuModuleLoadData got an empty image")
	}
	return d.keep(ctx, image)
}

func (d *driver) load(ctx Context, image []byte) (Module, error) {
	// PTX is read up to a zero byte.
	raw := append(append(make([]byte, 0, len(image)+1), image...), 0)
	var m C.sc_handle
	r := C.sc_module_load(C.sc_handle(ctx), unsafe.Pointer(&raw[0]), &m)
	runtime.KeepAlive(raw)
	if r != 0 {
		return 0, d.fail(r, "cuModuleLoadData of %d bytes", len(image))
	}
	return Module(m), nil
}

func (d *driver) UnloadModule(ctx Context, m Module) error {
	if keeps(ctx, m) {
		return nil
	}
	if r := C.sc_module_unload(C.sc_handle(ctx), C.sc_handle(m)); r != 0 {
		return d.fail(r, "cuModuleUnload")
	}
	return nil
}

func (d *driver) Function(ctx Context, m Module, name string, maxShared int) (Function, error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	var f C.sc_handle
	if r := C.sc_function(C.sc_handle(ctx), C.sc_handle(m), c, C.int(maxShared), &f); r != 0 {
		return 0, d.fail(r, "loading kernel %s", name)
	}
	return Function(f), nil
}
