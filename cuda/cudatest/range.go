package cudatest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
)

// unmap ends a block's mapping.
func unmap(b *block) {
	if b.lent {
		return
	}
	if b.reserved {
		// Nothing else may be mapped between the pieces.
		_, _ = unix.MmapPtr(-1, 0, unsafe.Pointer(&b.data[0]), uintptr(len(b.data)), unix.PROT_NONE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
		return
	}
	if b.chunk {
		_ = unix.MunmapPtr(unsafe.Pointer(&b.data[0]), uintptr(len(b.data)))
		return
	}
	_ = unix.Munmap(b.data)
}

// ExportRange duplicates the memfds of the blocks in a range. A real driver breaks
// when that races with an unmapping in another thread, which a test would see once in
// a thousand runs: here the goroutine that mapped the memory must be the one that
// exports it, and Hazards tells of every other one.
func (d *Driver) ExportRange(ctx cuda.Context, p cuda.Ptr, bytes int64, most int) ([]cuda.Chunk, error) {
	const call = "exporting the mapping at %#x"
	if err := d.in(ctx, "ExportRange", call, uint64(p)); err != nil {
		return nil, err
	}
	d.mu.Unlock()
	return cuda.ExportChunks(p, bytes, most, func(at cuda.Ptr) (cuda.Chunk, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		base, b := d.memory.find(uint64(at))
		if b == nil || b.handle == b.id || b.ipc {
			return cuda.Chunk{}, failed(cuda.InvalidValue, call, uint64(at))
		}
		if me := goroutine(); me != b.owner {
			d.hazards = append(d.hazards, fmt.Sprintf("memory at %#x, mapped by goroutine %d, was exported by goroutine %d:\n%s",
				base, b.owner, me, debug.Stack()))
		}
		fd, err := unix.FcntlInt(uintptr(d.memory.handles[b.handle].fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return cuda.Chunk{}, failed(cuda.OutOfMemory, call, uint64(at))
		}
		return cuda.Chunk{Address: cuda.Ptr(base), Bytes: int64(len(b.data)), BufferID: b.id, Device: b.device, FD: fd}, nil
	})
}

// Hazards returns the calls so far that can break a real driver.
func (d *Driver) Hazards() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.hazards)
}

// goroutine returns the number of the calling goroutine.
func goroutine() (n int) {
	b := make([]byte, 64)
	_, _ = fmt.Sscanf(string(b[:runtime.Stack(b, false)]), "goroutine %d ", &n)
	return n
}

// StillMapped compares the ids of blocks.
func (d *Driver) StillMapped(ctx cuda.Context, at []cuda.Ptr, ids []uint64) (bool, error) {
	if err := d.in(ctx, "StillMapped", "cuPointerGetAttribute of %d addresses", len(at)); err != nil {
		return false, err
	}
	defer d.mu.Unlock()
	for i, p := range at {
		if _, b := d.memory.find(uint64(p)); b == nil || b.id != ids[i] {
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
			if _, err = unix.MmapPtr(own, 0, at, uintptr(n), unix.PROT_READ|unix.PROT_WRITE,
				unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
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
		d.memory.handles[handle] = &shared{fd: own, uses: 1, imported: true}
		p := d.memory.add(&block{data: unsafe.Slice((*byte)(at), n), kind: cuda.PointerDevice, device: device, id: d.id(),
			handle: handle, chunk: true, owner: goroutine()})
		r.Chunks = append(r.Chunks, cuda.Mapping{Address: p, Bytes: n, Handle: handle})
		at = unsafe.Add(at, n)
	}
	return r, nil
}

// ReserveRange reserves addresses.
func (d *Driver) ReserveRange(ctx cuda.Context, device int, bytes int64) (cuda.Range, error) {
	const call = "cuMemAddressReserve of %d bytes for device %d"
	if err := d.in(ctx, "ReserveRange", call, bytes, device); err != nil {
		return cuda.Range{}, err
	}
	defer d.mu.Unlock()
	if bytes <= 0 || bytes%granularity != 0 || !d.has(device) {
		return cuda.Range{}, failed(cuda.InvalidValue, call, bytes, device)
	}
	start, err := unix.MmapPtr(-1, 0, nil, uintptr(bytes), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return cuda.Range{}, failed(cuda.OutOfMemory, call, bytes, device)
	}
	d.memory.reserved[uint64(uintptr(start))] = space{start, bytes}
	return cuda.Range{Address: cuda.Ptr(uintptr(start)), Bytes: bytes}, nil
}

// MapChunk maps a memfd within a range of ReserveRange.
func (d *Driver) MapChunk(ctx cuda.Context, device int, r *cuda.Range, offset int64, fd int, bytes int64) error {
	const call = "mapping %d bytes at offset %d of a range for device %d"
	if err := cuda.CheckChunk(r, offset, bytes); err != nil {
		return err
	}
	if err := d.in(ctx, "MapChunk", call, bytes, offset, device); err != nil {
		return err
	}
	defer d.mu.Unlock()
	var s unix.Stat_t
	within, at := d.memory.reserved[uint64(r.Address)], r.Address+cuda.Ptr(offset)
	taken := slices.ContainsFunc(r.Chunks, func(c cuda.Mapping) bool {
		return c.Address < at+cuda.Ptr(bytes) && at < c.Address+cuda.Ptr(c.Bytes)
	})
	if unix.Fstat(fd, &s) != nil || s.Size != bytes || (offset|bytes)%granularity != 0 || !d.has(device) || taken ||
		within.bytes != r.Bytes {
		return failed(cuda.InvalidValue, call, bytes, offset, device)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return failed(cuda.OutOfMemory, call, bytes, offset, device)
	}
	place := unsafe.Add(within.start, offset)
	if _, err := unix.MmapPtr(own, 0, place, uintptr(bytes), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		_ = unix.Close(own)
		return failed(cuda.OutOfMemory, call, bytes, offset, device)
	}
	handle := d.id()
	d.memory.handles[handle] = &shared{fd: own, uses: 1, imported: true}
	d.memory.add(&block{data: unsafe.Slice((*byte)(place), bytes), kind: cuda.PointerDevice, device: device, id: d.id(),
		handle: handle, chunk: true, reserved: true, owner: goroutine()})
	r.Chunks = append(r.Chunks, cuda.Mapping{Address: at, Bytes: bytes, Handle: handle})
	return nil
}

// UnmapRange ends a Range.
func (d *Driver) UnmapRange(ctx cuda.Context, r cuda.Range) error {
	const call = "unmapping %d bytes at %#x"
	if err := d.in(ctx, "UnmapRange", call, r.Bytes, uint64(r.Address)); err != nil {
		return err
	}
	defer d.mu.Unlock()
	for _, c := range r.Chunks {
		if !d.drop(c.Address, func(b *block) bool {
			return b.chunk && b.handle == c.Handle &&
				int64(len(b.data)) == c.Bytes
		}) {
			return failed(cuda.InvalidValue, call, r.Bytes, uint64(r.Address))
		}
	}
	if d.memory.reserved[uint64(r.Address)].bytes != 0 {
		d.memory.unreserve(uint64(r.Address))
	}
	return nil
}
