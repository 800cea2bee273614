package cuda

// #cgo noescape sc_still_mapped
// #cgo nocallback sc_still_mapped
// #include "driver.h"
import "C"

import (
	"math"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

func (d *driver) RetainRange(ctx Context, p Ptr, bytes int64) ([]Mapping, error) {
	return Chunks(d, ctx, p, bytes, func(at Ptr) (Mapping, error) {
		var m C.sc_mapping
		if r := C.sc_chunk(C.sc_handle(ctx), C.sc_ptr(at), &m); r != 0 {
			return Mapping{}, d.fail(r, "cuMemRetainAllocationHandle of %#x", uint64(at))
		}
		return Mapping{Address: Ptr(m.address), Bytes: int64(m.bytes), Handle: uint64(m.handle)}, nil
	})
}

func (d *driver) StillMapped(ctx Context, at []Ptr, handles []uint64) (bool, error) {
	if len(at) != len(handles) {
		return false, plugin.Errorf(plugin.InvalidArgument, "%d addresses of %d handles", len(at), len(handles))
	}
	if len(at) == 0 {
		return true, nil
	}
	var same C.int
	r := C.sc_still_mapped(C.sc_handle(ctx), (*C.sc_ptr)(unsafe.Pointer(&at[0])), (*C.uint64_t)(unsafe.Pointer(&handles[0])), C.int(len(at)), &same)
	if r != 0 {
		return false, d.fail(r, "cuMemRetainAllocationHandle of %d addresses from %#x on", len(at), uint64(at[0]))
	}
	return same != 0, nil
}

// Chunks walks a range for implementations of Driver: chunk retains the handle
// that is mapped at an address. After a failure none stays retained.
func Chunks(d Driver, ctx Context, p Ptr, bytes int64, chunk func(at Ptr) (Mapping, error)) (chunks []Mapping, err error) {
	if err := size("cuMemRetainAllocationHandle", bytes); err != nil {
		return nil, err
	}
	if uint64(bytes) > math.MaxUint64-uint64(p) {
		return nil, plugin.Errorf(plugin.InvalidArgument, "%d bytes at %#x pass the end of memory", bytes, uint64(p))
	}
	for at := p; at < p+Ptr(bytes); {
		var m Mapping
		m, err = chunk(at)
		if err == nil {
			chunks = append(chunks, m)
			if len(chunks) > MaxChunks || m.Address > at || m.Address+Ptr(m.Bytes) <= at {
				err = plugin.Errorf(plugin.Unsupported, "%d bytes at %#x are of more than %d handles, or not mapped by handle", bytes, uint64(p), MaxChunks)
			}
		}
		if err != nil {
			for _, c := range chunks {
				_ = d.ReleaseMemory(ctx, c.Handle) // what failed is the error
			}
			return nil, err
		}
		at = m.Address + Ptr(m.Bytes)
	}
	return chunks, nil
}

// CheckRange refuses what ImportRange does not take, for implementations of
// Driver.
func CheckRange(fds []int, bytes []int64) error {
	if len(fds) == 0 || len(fds) != len(bytes) || len(fds) > MaxChunks {
		return plugin.Errorf(plugin.InvalidArgument, "import of %d file descriptors of %d chunks; at most %d", len(fds), len(bytes), MaxChunks)
	}
	total := int64(0)
	for _, n := range bytes {
		if n <= 0 || n > math.MaxInt64-total {
			return plugin.Errorf(plugin.InvalidArgument, "import of a chunk of %d bytes", n)
		}
		total += n
	}
	return nil
}

func (d *driver) ImportRange(ctx Context, device int, fds []int, bytes []int64) (Range, error) {
	if err := CheckRange(fds, bytes); err != nil {
		return Range{}, err
	}
	numbers, chunks := make([]C.int, len(fds)), make([]C.sc_mapping, len(fds))
	for i := range fds {
		numbers[i], chunks[i].bytes = C.int(fds[i]), C.uint64_t(bytes[i])
	}
	var address C.sc_ptr
	var total C.uint64_t
	if r := C.sc_import_range(C.sc_handle(ctx), C.int(device), &numbers[0], &chunks[0], C.int(len(fds)), &address, &total); r != 0 {
		return Range{}, d.fail(r, "importing %d chunks, %d bytes, for device %d", len(fds), uint64(total), device)
	}
	m := Range{Address: Ptr(address), Bytes: int64(total)}
	for _, c := range chunks {
		m.Chunks = append(m.Chunks, Mapping{Address: Ptr(c.address), Bytes: int64(c.bytes), Handle: uint64(c.handle)})
	}
	return m, nil
}

func (d *driver) UnmapRange(ctx Context, m Range) error {
	if len(m.Chunks) == 0 {
		return plugin.Errorf(plugin.InvalidArgument, "unmapping a range of no chunks")
	}
	chunks := make([]C.sc_mapping, len(m.Chunks))
	for i, c := range m.Chunks {
		chunks[i] = C.sc_mapping{address: C.sc_ptr(c.Address), handle: C.uint64_t(c.Handle), bytes: C.uint64_t(c.Bytes)}
	}
	if r := C.sc_unmap_range(C.sc_handle(ctx), &chunks[0], C.int(len(chunks)), C.sc_ptr(m.Address), C.uint64_t(m.Bytes)); r != 0 {
		return d.fail(r, "unmapping %d chunks, %d bytes at %#x", len(chunks), m.Bytes, uint64(m.Address))
	}
	return nil
}
