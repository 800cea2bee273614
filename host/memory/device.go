package memory

import (
	"errors"
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
	pieces  cuda.Range   // of ImportRange or ReserveRange, likewise
	opened  cuda.Ptr     // of OpenIPC, likewise
}

// ipcBytes is the length of a legacy IPC handle.
const ipcBytes = len(cuda.IPCHandle{})

// MapDevice maps a region's part of its handle for a device: handles of kind
// cuda_vmm by their descriptor, which stays the caller's, and of kind cuda_ipc
// by their bytes. Others are refused with code Unsupported.
func MapDevice(driver cuda.Driver, context cuda.Context, device int, r plugin.Region) (*DeviceMapping, error) {
	return MapExtensible(driver, context, device, r, 0)
}

// MapExtensible is like MapDevice. Behind memory of kind cuda_vmm it keeps so many bytes of addresses free, for Extend.
func MapExtensible(driver cuda.Driver, context cuda.Context, device int, r plugin.Region, behind int64) (*DeviceMapping,
	error) {
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
		var start cuda.Ptr
		var err error
		if behind > 0 {
			start, err = m.reserve(device, h, behind)
		} else if m.mapping, err = driver.ImportMemory(context, device, h.FD, h.Bytes); err == nil {
			start = m.mapping.Address
		}
		if err != nil {
			return nil, plugin.Errorf(plugin.CodeOf(err), "mapping region %d: %w", r.ID, err)
		}
		m.address = start + cuda.Ptr(h.Offset)
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

// reserve maps a handle at the start of addresses that are so many bytes longer.
func (m *DeviceMapping) reserve(device int, h plugin.Handle, behind int64) (cuda.Ptr, error) {
	if behind > maxMapping-h.Bytes {
		return 0, plugin.Errorf(plugin.InvalidArgument, "%d bytes with %d behind them are too many", h.Bytes, behind)
	}
	r, err := m.driver.ReserveRange(m.context, device, h.Bytes+behind)
	if err != nil {
		return 0, err
	}
	if err := m.driver.MapChunk(m.context, device, &r, 0, h.FD, h.Bytes); err != nil {
		return 0, errors.Join(err, m.driver.UnmapRange(m.context, r))
	}
	m.pieces = r
	return r.Address, nil
}

// Extend maps exported memory at an offset of the addresses that were kept free. The descriptor stays the caller's.
func (m *DeviceMapping) Extend(device int, offset int64, fd int, bytes int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.address == 0 {
		return plugin.Errorf(plugin.Closed, "the mapping is closed")
	}
	return m.driver.MapChunk(m.context, device, &m.pieces, offset, fd, bytes)
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
	case pieces.Bytes != 0:
		return m.driver.UnmapRange(m.context, pieces)
	case mapping.Bytes != 0:
		return m.driver.Unmap(m.context, mapping)
	case opened != 0:
		return m.driver.CloseIPC(m.context, opened)
	}
	return nil
}
