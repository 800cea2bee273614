package cudatest

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
)

// unmap ends a block's mapping.
func unmap(b *block) {
	if b.reserved {
		// Nothing else may come to lie between the pieces.
		_, _ = unix.MmapPtr(-1, 0, unsafe.Pointer(&b.data[0]), uintptr(len(b.data)), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
		return
	}
	if b.chunk {
		_ = unix.MunmapPtr(unsafe.Pointer(&b.data[0]), uintptr(len(b.data)))
		return
	}
	_ = unix.Munmap(b.data)
}

// RetainRange counts a use of the handle of every block in a range.
func (d *Driver) RetainRange(ctx cuda.Context, p cuda.Ptr, bytes int64) ([]cuda.Mapping, error) {
	if err := d.in(ctx, "RetainRange", "cuMemRetainAllocationHandle of %#x", uint64(p)); err != nil {
		return nil, err
	}
	d.mu.Unlock()
	return cuda.Chunks(d, ctx, p, bytes, func(at cuda.Ptr) (cuda.Mapping, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		base, b := d.memory.find(uint64(at))
		if b == nil || b.handle == b.id || b.ipc {
			return cuda.Mapping{}, failed(cuda.InvalidValue, "cuMemRetainAllocationHandle of %#x", uint64(at))
		}
		d.memory.handles[b.handle].uses++
		return cuda.Mapping{Address: cuda.Ptr(base), Bytes: int64(len(b.data)), Handle: b.handle}, nil
	})
}

// StillMapped compares the handles of blocks.
func (d *Driver) StillMapped(ctx cuda.Context, at []cuda.Ptr, handles []uint64) (bool, error) {
	if err := d.in(ctx, "StillMapped", "cuMemRetainAllocationHandle of %d addresses", len(at)); err != nil {
		return false, err
	}
	defer d.mu.Unlock()
	for i, p := range at {
		if _, b := d.memory.find(uint64(p)); b == nil || b.handle == b.id || b.ipc || b.handle != handles[i] {
			return false, nil
		}
	}
	return true, nil
}

// ImportRange maps memfds behind each other.
func (d *Driver) ImportRange(ctx cuda.Context, device int, fds []int, bytes []int64) (cuda.Range, error) {
	const call = "importing %d chunks for device %d"
	if err := cuda.CheckRange(fds, bytes); err != nil {
		return cuda.Range{}, err
	}
	if err := d.in(ctx, "ImportRange", call, len(fds), device); err != nil {
		return cuda.Range{}, err
	}
	defer d.mu.Unlock()
	r := cuda.Range{}
	for i, n := range bytes {
		var s unix.Stat_t
		if unix.Fstat(fds[i], &s) != nil || s.Size != n || n%granularity != 0 || !d.has(device) {
			return cuda.Range{}, failed(cuda.InvalidValue, call, len(fds), device)
		}
		r.Bytes += n
	}
	space, err := unix.MmapPtr(-1, 0, nil, uintptr(r.Bytes), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return cuda.Range{}, failed(cuda.OutOfMemory, call, len(fds), device)
	}
	r.Address = cuda.Ptr(uintptr(space))
	at := space
	for i, n := range bytes {
		own, err := unix.FcntlInt(uintptr(fds[i]), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			if _, err = unix.MmapPtr(own, 0, at, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
				_ = unix.Close(own)
			}
		}
		if err != nil {
			for _, c := range r.Chunks {
				d.drop(c.Address, func(*block) bool { return true })
			}
			_ = unix.MunmapPtr(at, uintptr(r.Bytes)-(uintptr(at)-uintptr(space)))
			return cuda.Range{}, failed(cuda.OutOfMemory, call, len(fds), device)
		}
		handle := d.id()
		d.memory.handles[handle] = &shared{fd: own, uses: 1}
		p := d.memory.add(&block{data: unsafe.Slice((*byte)(at), n), kind: cuda.PointerDevice, device: device, id: d.id(), handle: handle, chunk: true})
		r.Chunks = append(r.Chunks, cuda.Mapping{Address: p, Bytes: n, Handle: handle})
		at = unsafe.Add(at, n)
	}
	return r, nil
}

// UnmapRange ends a Range.
func (d *Driver) UnmapRange(ctx cuda.Context, r cuda.Range) error {
	const call = "unmapping %d bytes at %#x"
	if err := d.in(ctx, "UnmapRange", call, r.Bytes, uint64(r.Address)); err != nil {
		return err
	}
	defer d.mu.Unlock()
	for _, c := range r.Chunks {
		if !d.drop(c.Address, func(b *block) bool { return b.chunk && b.handle == c.Handle && int64(len(b.data)) == c.Bytes }) {
			return failed(cuda.InvalidValue, call, r.Bytes, uint64(r.Address))
		}
	}
	return nil
}
