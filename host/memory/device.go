package memory

import (
	"sync"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// DeviceMapping is device memory of this or another process, mapped for one
// device.
type DeviceMapping struct {
	driver  cuda.Driver
	context cuda.Context
	address cuda.Ptr // of the region
	bytes   int64

	mu      sync.Mutex
	mapping cuda.Mapping // of ImportMemory, if it was called
	pieces  cuda.Range   // of ImportRange, likewise
	opened  cuda.Ptr     // of OpenIPC, likewise
}

// ipcBytes is the length of a legacy IPC handle.
const ipcBytes = len(cuda.IPCHandle{})

// MapDevice maps a region's part of its handle for a device: handles of kind
// cuda_vmm by their descriptor, which stays the caller's, and of kind cuda_ipc
// by their bytes. Others are refused with code Unsupported.
func MapDevice(driver cuda.Driver, context cuda.Context, device int, r plugin.Region) (*DeviceMapping, error) {
	h := r.Handle
	if r.Memory != plugin.MemoryKindCuda {
		return nil, plugin.Errorf(plugin.Unsupported, "mapping region %d: %s memory is not a device's", r.ID, r.Memory)
	}
	if h.Kind == plugin.HandleKindNone {
		return nil, plugin.Errorf(plugin.Unsupported, "mapping region %d: the memory was not exported", r.ID)
	}
	if err := checkRegion(r); err != nil {
		return nil, err
	}
	m := &DeviceMapping{driver: driver, context: context, bytes: r.Bytes}
	switch h.Kind {
	case plugin.HandleKindCudaVmm:
		if h.FD < 0 {
			return nil, plugin.Errorf(plugin.Unsupported, "mapping region %d: a cuda_vmm handle without its descriptor: the memory is on another host", r.ID)
		}
		mapping, err := driver.ImportMemory(context, device, h.FD, h.Bytes)
		if err != nil {
			return nil, plugin.Errorf(plugin.CodeOf(err), "mapping region %d: %w", r.ID, err)
		}
		m.mapping, m.address = mapping, mapping.Address+cuda.Ptr(h.Offset)
	case plugin.HandleKindCudaIpc:
		if len(h.Data) != ipcBytes {
			return nil, plugin.Errorf(plugin.Protocol, "mapping region %d: a cuda_ipc handle of %d bytes, want %d", r.ID,
				len(h.Data), ipcBytes)
		}
		base, err := driver.OpenIPC(context, cuda.IPCHandle(h.Data))
		if err != nil {
			return nil, plugin.Errorf(plugin.CodeOf(err), "mapping region %d: %w", r.ID, err)
		}
		m.opened, m.address = base, base+cuda.Ptr(h.Offset)
	default:
		return nil, plugin.Errorf(plugin.Unsupported, "mapping region %d: a handle of kind %s cannot be mapped as device memory", r.ID, h.Kind)
	}
	return m, nil
}

// MapDevicePieces maps memory of several handles, whose descriptors stay the
// caller's, behind each other for a device. bytes are their lengths.
func MapDevicePieces(driver cuda.Driver, context cuda.Context, device int, fds []int, bytes []int64) (*DeviceMapping,
	error) {
	pieces, err := driver.ImportRange(context, device, fds, bytes)
	if err != nil {
		return nil, plugin.Errorf(plugin.CodeOf(err), "mapping %d pieces: %w", len(fds), err)
	}
	return &DeviceMapping{driver: driver, context: context, bytes: pieces.Bytes, address: pieces.Address, pieces: pieces},
		nil
}

// Address returns the region's first address, 0 once closed.
func (m *DeviceMapping) Address() cuda.Ptr {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.address
}

// Bytes returns the length of the region.
func (m *DeviceMapping) Bytes() int64 { return m.bytes }

// Close takes the memory away. Nothing may use it any more, kernels included.
func (m *DeviceMapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	mapping, pieces, opened := m.mapping, m.pieces, m.opened
	m.mapping, m.pieces, m.opened, m.address = cuda.Mapping{}, cuda.Range{}, 0, 0
	switch {
	case len(pieces.Chunks) > 0:
		return m.driver.UnmapRange(m.context, pieces)
	case mapping.Bytes != 0:
		return m.driver.Unmap(m.context, mapping)
	case opened != 0:
		return m.driver.CloseIPC(m.context, opened)
	}
	return nil
}
