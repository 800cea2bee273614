package cudatest

import (
	"encoding/binary"

	"github.com/shunt-ccl/shunt/cuda"
)

// ExportIPC publishes an allocation of Alloc to all drivers of this process.
func (d *Driver) ExportIPC(ctx cuda.Context, p cuda.Ptr) (cuda.IPCHandle, error) {
	if err := d.in(ctx, "ExportIPC", "cuIpcGetMemHandle of %#x", uint64(p)); err != nil {
		return cuda.IPCHandle{}, err
	}
	defer d.mu.Unlock()
	_, b := d.memory.find(uint64(p))
	if b == nil || b.kind != cuda.PointerDevice || b.handle != b.id || b.ipc {
		return cuda.IPCHandle{}, failed(cuda.InvalidValue, "cuIpcGetMemHandle of %#x", uint64(p))
	}
	opened.Lock()
	defer opened.Unlock()
	if opened.fds == nil {
		opened.fds = map[uint64]exported{}
	}
	opened.fds[b.id] = exported{d, d.memory.handles[b.handle].fd, int64(len(b.data))}
	var h cuda.IPCHandle
	binary.LittleEndian.PutUint64(h[:], b.id)
	return h, nil
}

// OpenIPC maps what another driver exported; its own is refused, as by CUDA.
func (d *Driver) OpenIPC(ctx cuda.Context, h cuda.IPCHandle) (cuda.Ptr, error) {
	if err := d.in(ctx, "OpenIPC", "cuIpcOpenMemHandle"); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	opened.Lock()
	defer opened.Unlock()
	e, ok := opened.fds[binary.LittleEndian.Uint64(h[:])]
	if !ok || e.driver == d {
		return 0, failed(cuda.InvalidValue, "cuIpcOpenMemHandle")
	}
	data, err := mapFD(e.fd, e.bytes)
	if err != nil {
		return 0, failed(cuda.InvalidValue, "cuIpcOpenMemHandle")
	}
	return d.memory.add(&block{data: data, kind: cuda.PointerDevice, device: int(ctx) - 1, id: d.id(), ipc: true}), nil
}

// CloseIPC unmaps memory of OpenIPC.
func (d *Driver) CloseIPC(ctx cuda.Context, p cuda.Ptr) error {
	if err := d.in(ctx, "CloseIPC", "cuIpcCloseMemHandle of %#x", uint64(p)); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if !d.drop(p, func(b *block) bool { return b.ipc }) {
		return failed(cuda.InvalidValue, "cuIpcCloseMemHandle of %#x", uint64(p))
	}
	return nil
}
