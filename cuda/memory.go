package cuda

// #include "driver.h"
import "C"

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

func (d *driver) Alloc(ctx Context, bytes int64) (Ptr, error) {
	var p C.sc_ptr
	if err := size("cuMemAlloc", bytes); err != nil {
		return 0, err
	}
	if r := C.sc_alloc(C.sc_handle(ctx), C.uint64_t(bytes), &p); r != 0 {
		return 0, d.fail(r, "cuMemAlloc of %d bytes", bytes)
	}
	return Ptr(p), nil
}

// size refuses what would wrap in C.
func size(call string, bytes int64) error {
	if bytes <= 0 {
		return plugin.Errorf(plugin.InvalidArgument, "%s got %d bytes, want 1 or more", call, bytes)
	}
	return nil
}

func (d *driver) Free(ctx Context, p Ptr) error {
	if r := C.sc_free(C.sc_handle(ctx), C.sc_ptr(p)); r != 0 {
		return d.fail(r, "cuMemFree of %#x", uint64(p))
	}
	return nil
}

func (d *driver) MemoryInfo(ctx Context) (available, total int64, err error) {
	var a, t C.uint64_t
	if r := C.sc_memory_info(C.sc_handle(ctx), &a, &t); r != 0 {
		return 0, 0, d.fail(r, "cuMemGetInfo")
	}
	return int64(a), int64(t), nil
}

func (d *driver) AllocHost(ctx Context, bytes int64) (HostMemory, error) {
	var host unsafe.Pointer
	var device C.sc_ptr
	if err := size("cuMemHostAlloc", bytes); err != nil {
		return HostMemory{}, err
	}
	if r := C.sc_host_alloc(C.sc_handle(ctx), C.uint64_t(bytes), &host, &device); r != 0 {
		return HostMemory{}, d.fail(r, "cuMemHostAlloc of %d bytes", bytes)
	}
	return HostMemory{Address: uintptr(host), Device: Ptr(device), Bytes: bytes}, nil
}

func (d *driver) FreeHost(ctx Context, m HostMemory) error {
	if r := C.sc_host_free(C.sc_handle(ctx), *(*unsafe.Pointer)(unsafe.Pointer(&m.Address))); r != 0 {
		return d.fail(r, "cuMemFreeHost of %#x", m.Address)
	}
	return nil
}

func (d *driver) RegisterHost(ctx Context, p unsafe.Pointer, bytes int64) (Ptr, error) {
	var device C.sc_ptr
	if err := size("cuMemHostRegister", bytes); err != nil {
		return 0, err
	}
	if r := C.sc_host_register(C.sc_handle(ctx), p, C.uint64_t(bytes), &device); r != 0 {
		return 0, d.fail(r, "cuMemHostRegister of %d bytes at %p", bytes, p)
	}
	return Ptr(device), nil
}

func (d *driver) UnregisterHost(ctx Context, p unsafe.Pointer) error {
	if r := C.sc_host_unregister(C.sc_handle(ctx), p); r != 0 {
		return d.fail(r, "cuMemHostUnregister of %p", p)
	}
	return nil
}

func (d *driver) CreateMemory(ctx Context, device int, bytes int64) (Mapping, error) {
	var m C.sc_mapping
	if err := size("cuMemCreate", bytes); err != nil {
		return Mapping{}, err
	}
	if r := C.sc_create(C.sc_handle(ctx), C.int(device), C.uint64_t(bytes), &m); r != 0 {
		return Mapping{}, d.fail(r, "cuMemCreate of %d bytes on device %d", bytes, device)
	}
	return Mapping{Address: Ptr(m.address), Bytes: int64(m.bytes), Handle: uint64(m.handle)}, nil
}

func (d *driver) ExportMemory(ctx Context, handle uint64) (int, error) {
	fd := C.int(-1)
	if r := C.sc_export(C.sc_handle(ctx), C.uint64_t(handle), &fd); r != 0 {
		return -1, d.fail(r, "cuMemExportToShareableHandle")
	}
	return int(fd), nil
}

func (d *driver) ImportMemory(ctx Context, device, fd int, bytes int64) (Mapping, error) {
	var m C.sc_mapping
	if err := size("cuMemImportFromShareableHandle", bytes); err != nil {
		return Mapping{}, err
	}
	if r := C.sc_import(C.sc_handle(ctx), C.int(device), C.int(fd), C.uint64_t(bytes), &m); r != 0 {
		return Mapping{}, d.fail(r, "cuMemImportFromShareableHandle of file descriptor %d, %d bytes, for device %d", fd,
			bytes, device)
	}
	return Mapping{Address: Ptr(m.address), Bytes: int64(m.bytes), Handle: uint64(m.handle)}, nil
}

func (d *driver) Unmap(ctx Context, m Mapping) error {
	c := C.sc_mapping{address: C.sc_ptr(m.Address), handle: C.uint64_t(m.Handle), bytes: C.uint64_t(m.Bytes)}
	if r := C.sc_unmap(C.sc_handle(ctx), &c); r != 0 {
		return d.fail(r, "cuMemUnmap of %d bytes at %#x", m.Bytes, uint64(m.Address))
	}
	return nil
}

func (d *driver) Pointer(ctx Context, p Ptr) (PointerInfo, error) {
	var raw C.sc_pointer
	if r := C.sc_pointer_info(C.sc_handle(ctx), C.sc_ptr(p), &raw); r != 0 {
		return PointerInfo{}, d.fail(r, "cuPointerGetAttribute of %#x", uint64(p))
	}
	return PointerInfo{
		Kind: PointerKind(raw.kind), Device: int(raw.device), Base: Ptr(raw.base), Bytes: int64(raw.bytes),
		BufferID: uint64(raw.buffer_id),
		Managed:  raw.managed != 0, LegacyIPC: raw.legacy_ipc != 0, Shareable: raw.shareable != 0,
	}, nil
}

func (d *driver) ExportIPC(ctx Context, p Ptr) (IPCHandle, error) {
	var h C.sc_ipc_handle
	if r := C.sc_ipc_export(C.sc_handle(ctx), C.sc_ptr(p), &h); r != 0 {
		return IPCHandle{}, d.fail(r, "cuIpcGetMemHandle of %#x", uint64(p))
	}
	return *(*IPCHandle)(unsafe.Pointer(&h)), nil
}

func (d *driver) OpenIPC(ctx Context, h IPCHandle) (Ptr, error) {
	var p C.sc_ptr
	if r := C.sc_ipc_open(C.sc_handle(ctx), (*C.sc_ipc_handle)(unsafe.Pointer(&h)), &p); r != 0 {
		return 0, d.fail(r, "cuIpcOpenMemHandle")
	}
	return Ptr(p), nil
}

func (d *driver) CloseIPC(ctx Context, p Ptr) error {
	if r := C.sc_ipc_close(C.sc_handle(ctx), C.sc_ptr(p)); r != 0 {
		return d.fail(r, "cuIpcCloseMemHandle of %#x", uint64(p))
	}
	return nil
}

func (d *driver) Write(ctx Context, to Ptr, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	if r := C.sc_write(C.sc_handle(ctx), C.sc_ptr(to), unsafe.Pointer(&from[0]), C.uint64_t(len(from))); r != 0 {
		return d.fail(r, "cuMemcpyHtoD of %d bytes to %#x", len(from), uint64(to))
	}
	return nil
}

func (d *driver) Read(ctx Context, to []byte, from Ptr) error {
	if len(to) == 0 {
		return nil
	}
	if r := C.sc_read(C.sc_handle(ctx), unsafe.Pointer(&to[0]), C.sc_ptr(from), C.uint64_t(len(to))); r != 0 {
		return d.fail(r, "cuMemcpyDtoH of %d bytes from %#x", len(to), uint64(from))
	}
	return nil
}
