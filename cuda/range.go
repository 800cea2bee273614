package cuda

// #cgo noescape sc_still_mapped
// #cgo nocallback sc_still_mapped
// #include "driver.h"
import "C"

import (
	"math"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

func (d *driver) ExportRange(ctx Context, p Ptr, bytes int64, most int) ([]Chunk, error) {
	return ExportChunks(p, bytes, most, func(at Ptr) (Chunk, error) {
		var c C.sc_chunk
		if r := C.sc_export_chunk(C.sc_handle(ctx), C.sc_ptr(at), &c); r != 0 {
			return Chunk{}, d.fail(r, "exporting the mapping at %#x", uint64(at))
		}
		return Chunk{Address: Ptr(c.address), Bytes: int64(c.bytes), BufferID: uint64(c.buffer_id), Device: int(c.device),
			FD: int(c.fd)}, nil
	})
}

func (d *driver) StillMapped(ctx Context, at []Ptr, ids []uint64) (bool, error) {
	if len(at) != len(ids) {
		return false, plugin.Errorf(plugin.InvalidArgument, "the call has %d addresses and %d buffer ids, want one for each", len(at),
			len(ids))
	}
	if len(at) == 0 {
		return true, nil
	}
	var same C.int
	r := C.sc_still_mapped(C.sc_handle(ctx), (*C.sc_ptr)(unsafe.Pointer(&at[0])), (*C.uint64_t)(unsafe.Pointer(&ids[0])),
		C.int(len(at)), &same)
	if r != 0 {
		return false, d.fail(r, "cuPointerGetAttribute of %d addresses from %#x on", len(at), uint64(at[0]))
	}
	return same != 0, nil
}

// ExportChunks walks a range for implementations of Driver: chunk exports what is
// mapped at an address. After a failure no descriptor stays open.
func ExportChunks(p Ptr, bytes int64, most int, chunk func(at Ptr) (Chunk, error)) (chunks []Chunk, err error) {
	if err := size("ExportRange", bytes); err != nil {
		return nil, err
	}
	if uint64(bytes) > math.MaxUint64-uint64(p) {
		return nil, plugin.Errorf(plugin.InvalidArgument, "%d bytes at %#x reach past the end of memory", bytes, uint64(p))
	}
	for at := p; at < p+Ptr(bytes); {
		var c Chunk
		if len(chunks) == most {
			err = plugin.Errorf(plugin.Unsupported, "%d bytes at %#x are of more than %d handles", bytes, uint64(p), most)
		} else if c, err = chunk(at); err == nil {
			chunks = append(chunks, c)
			if c.Address > at || c.Address+Ptr(c.Bytes) <= at {
				err = plugin.Errorf(plugin.Unsupported, "the driver reports the mapping at %#x as %d bytes at %#x", uint64(at),
					c.Bytes, uint64(c.Address))
			}
		}
		if err != nil {
			CloseChunks(chunks)
			return nil, err
		}
		at = c.Address + Ptr(c.Bytes)
	}
	return chunks, nil
}

// CloseChunks closes the descriptors of chunks.
func CloseChunks(chunks []Chunk) {
	for _, c := range chunks {
		_ = unix.Close(c.FD) // a descriptor of memory has nothing to write back
	}
}

// CheckRange refuses what ImportRange does not take, for implementations of
// Driver.
func CheckRange(fds []int, bytes []int64) error {
	if len(fds) == 0 || len(fds) != len(bytes) || len(fds) > MaxChunks {
		return plugin.Errorf(plugin.InvalidArgument, "an import has %d file descriptors for %d chunks, want one for each and at most %d",
			len(fds), len(bytes), MaxChunks)
	}
	total := int64(0)
	for _, n := range bytes {
		if n <= 0 || n > math.MaxInt64-total {
			return plugin.Errorf(plugin.InvalidArgument, "an import has a chunk of %d bytes", n)
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
	if r := C.sc_import_range(C.sc_handle(ctx), C.int(device), &numbers[0], &chunks[0], C.int(len(fds)), &address,
		&total); r != 0 {
		return Range{}, d.fail(r, "importing %d chunks, %d bytes, for device %d", len(fds), uint64(total), device)
	}
	m := Range{Address: Ptr(address), Bytes: int64(total)}
	for _, c := range chunks {
		m.Chunks = append(m.Chunks, Mapping{Address: Ptr(c.address), Bytes: int64(c.bytes), Handle: uint64(c.handle)})
	}
	return m, nil
}

func (d *driver) ReserveRange(ctx Context, device int, bytes int64) (Range, error) {
	if err := size("cuMemAddressReserve", bytes); err != nil {
		return Range{}, err
	}
	var address C.sc_ptr
	if r := C.sc_reserve(C.sc_handle(ctx), C.int(device), C.uint64_t(bytes), &address); r != 0 {
		return Range{}, d.fail(r, "cuMemAddressReserve of %d bytes for device %d", bytes, device)
	}
	return Range{Address: Ptr(address), Bytes: bytes}, nil
}

// CheckChunk refuses what MapChunk does not take, for implementations of Driver.
func CheckChunk(r *Range, offset, bytes int64) error {
	if offset < 0 || bytes <= 0 || offset > r.Bytes || bytes > r.Bytes-offset {
		return plugin.Errorf(plugin.InvalidArgument, "%d bytes at offset %d do not fit into a range of %d", bytes, offset,
			r.Bytes)
	}
	return nil
}

func (d *driver) MapChunk(ctx Context, device int, r *Range, offset int64, fd int, bytes int64) error {
	if err := CheckChunk(r, offset, bytes); err != nil {
		return err
	}
	c := C.sc_mapping{address: C.sc_ptr(r.Address) + C.sc_ptr(offset), bytes: C.uint64_t(bytes)}
	if status := C.sc_map_chunk(C.sc_handle(ctx), C.int(device), C.int(fd), &c); status != 0 {
		return d.fail(status, "mapping file descriptor %d, %d bytes, at offset %d of a range for device %d", fd, bytes, offset,
			device)
	}
	r.Chunks = append(r.Chunks, Mapping{Address: Ptr(c.address), Bytes: bytes, Handle: uint64(c.handle)})
	return nil
}

func (d *driver) UnmapRange(ctx Context, m Range) error {
	if m.Bytes == 0 {
		return plugin.Errorf(plugin.InvalidArgument, "a range to unmap has no addresses")
	}
	chunks := make([]C.sc_mapping, max(len(m.Chunks), 1)) // the address of one is passed
	for i, c := range m.Chunks {
		chunks[i] = C.sc_mapping{address: C.sc_ptr(c.Address), handle: C.uint64_t(c.Handle), bytes: C.uint64_t(c.Bytes)}
	}
	if r := C.sc_unmap_range(C.sc_handle(ctx), &chunks[0], C.int(len(m.Chunks)), C.sc_ptr(m.Address),
		C.uint64_t(m.Bytes)); r != 0 {
		return d.fail(r, "unmapping %d chunks, %d bytes at %#x", len(m.Chunks), m.Bytes, uint64(m.Address))
	}
	return nil
}
