package cuda

// #cgo CFLAGS: -I${SRCDIR}/../plugin -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
// #cgo LDFLAGS: -ldl
// #include "driver.h"
// #include <stdlib.h>
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/environment"
)

// ErrNoDriver is in the error of Open where the driver's library cannot be loaded.
var ErrNoDriver = errors.New("no CUDA driver")

// driver is libcuda. The library is loaded once and stays.
type driver struct{ version int }

var open = sync.OnceValues(func() (Driver, error) {
	path := environment.Get("SHUNT_LIBCUDA")
	if path == "" {
		path = "libcuda.so.1"
	}
	return load(path)
})

// Open loads the driver; later calls return the same one. SHUNT_LIBCUDA names
// another library than libcuda.so.1.
func Open() (Driver, error) { return open() }

func load(path string) (Driver, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var message [512]C.char
	if C.sc_load(name, &message[0], C.size_t(len(message))) != 0 {
		return nil, plugin.Errorf(plugin.Unsupported, "%w: %s", ErrNoDriver, C.GoString(&message[0]))
	}
	var version C.int
	d := &driver{}
	r := C.sc_version(&version)
	d.version = int(version)
	if r != 0 {
		return nil, d.fail(r, "cuInit")
	}
	return d, nil
}

// fail makes the error of result r; the call is formatted only then.
func (d *driver) fail(r C.int, format string, args ...any) error {
	call := fmt.Sprintf(format, args...)
	if Result(r) <= resultMissing {
		symbol := C.sc_symbol(C.int(resultMissing) - r)
		return plugin.Errorf(plugin.Unsupported, "%s: the CUDA driver, which supports CUDA %d.%d, has no function %s; install a newer one",
			call, d.version/1000, d.version%1000/10, C.GoString(symbol))
	}
	var name, text *C.char
	C.sc_error(r, &name, &text)
	e := &Error{Call: call, Result: Result(r)}
	if name != nil {
		e.Name = C.GoString(name)
	}
	if text != nil {
		e.Text = C.GoString(text)
	}
	return Wrap(e)
}

func (d *driver) Version() int { return d.version }

func (d *driver) Devices() ([]DeviceInfo, error) {
	var count C.int
	if r := C.sc_device_count(&count); r != 0 {
		return nil, d.fail(r, "cuDeviceGetCount")
	}
	infos := make([]DeviceInfo, count)
	for i := range infos {
		var raw C.sc_device
		if r := C.sc_device_info(C.int(i), &raw); r != 0 {
			return nil, d.fail(r, "describing device %d", i)
		}
		infos[i] = DeviceInfo{
			Ordinal: i, Name: C.GoString(&raw.name[0]), Bus: C.GoString(&raw.bus[0]), Memory: int64(raw.total_memory),
			Major: int(raw.major), Minor: int(raw.minor), Multiprocessors: int(raw.multiprocessors),
			MaxShared:     int(raw.max_shared),
			VirtualMemory: raw.virtual_memory != 0, ExportFD: raw.posix_handles != 0,
			StreamMemoryOps: raw.stream_memory_ops != 0, Domains: int(raw.domains),
		}
		copy(infos[i].UUID[:], C.GoBytes(unsafe.Pointer(&raw.uuid[0]), 16))
	}
	return infos, nil
}

func (d *driver) CanAccess(device, peer int) (bool, error) {
	var can C.int
	if r := C.sc_can_access(C.int(device), C.int(peer), &can); r != 0 {
		return false, d.fail(r, "cuDeviceCanAccessPeer of devices %d and %d", device, peer)
	}
	return can != 0, nil
}

func (d *driver) Retain(device int) (Context, error) {
	var c C.sc_handle
	if r := C.sc_retain(C.int(device), &c); r != 0 {
		return 0, d.fail(r, "cuDevicePrimaryCtxRetain of device %d", device)
	}
	notePrimary(Context(c), device)
	return Context(c), nil
}

func (d *driver) Release(device int) error {
	if r := C.sc_release(C.int(device)); r != 0 {
		return d.fail(r, "cuDevicePrimaryCtxRelease of device %d", device)
	}
	return nil
}

func (d *driver) Synchronize(ctx Context) error {
	if r := C.sc_synchronize(C.sc_handle(ctx)); r != 0 {
		return d.fail(r, "cuCtxSynchronize")
	}
	return nil
}

func (d *driver) EnablePeer(ctx, peer Context) error {
	if r := C.sc_enable_peer(C.sc_handle(ctx), C.sc_handle(peer)); r != 0 {
		return d.fail(r, "cuCtxEnablePeerAccess")
	}
	return nil
}

// Current returns the context that is current on this thread; 0 if there is none.
func Current() (Context, error) {
	var c C.sc_handle
	if r := C.sc_current(&c); r != 0 {
		return 0, (&driver{}).fail(r, "cuCtxGetCurrent")
	}
	return Context(c), nil
}
