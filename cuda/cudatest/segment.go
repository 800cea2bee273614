package cudatest

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
)

// Segment is reserved addresses into which a test maps pieces of memory, each by
// a handle of its own, as allocators with expandable segments do.
type Segment struct {
	driver  *Driver
	context cuda.Context
	device  int
	space   unsafe.Pointer
	bytes   int64
}

// Reserve reserves addresses for a device. Free gives them back.
func (d *Driver) Reserve(ctx cuda.Context, device int, bytes int64) (*Segment, error) {
	const call = "cuMemAddressReserve of %d bytes"
	if err := d.in(ctx, "Reserve", call, bytes); err != nil {
		return nil, err
	}
	defer d.mu.Unlock()
	if bytes <= 0 || bytes%granularity != 0 || !d.has(device) {
		return nil, failed(cuda.InvalidValue, call, bytes)
	}
	space, err := unix.MmapPtr(-1, 0, nil, uintptr(bytes), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, failed(cuda.OutOfMemory, call, bytes)
	}
	s := &Segment{driver: d, context: ctx, device: device, space: space, bytes: bytes}
	d.memory.segments = append(d.memory.segments, s)
	return s, nil
}

// Address returns the segment's first address.
func (s *Segment) Address() cuda.Ptr { return cuda.Ptr(uintptr(s.space)) }

// Map maps new memory of a multiple of 2 MiB at an offset where nothing is
// mapped. It is zero-filled.
func (s *Segment) Map(offset, bytes int64) error {
	const call = "cuMemMap of %d bytes at offset %d"
	d := s.driver
	if err := d.in(s.context, "Map", call, bytes, offset); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if offset < 0 || bytes <= 0 || (offset|bytes)%granularity != 0 || offset > s.bytes-bytes {
		return failed(cuda.InvalidValue, call, bytes, offset)
	}
	for at := offset; at < offset+bytes; at += granularity {
		if _, b := d.memory.find(uint64(s.Address()) + uint64(at)); b != nil {
			return failed(cuda.InvalidValue, call, bytes, offset)
		}
	}
	fd, err := newFD(bytes)
	if err != nil {
		return failed(cuda.OutOfMemory, call, bytes, offset)
	}
	at := unsafe.Add(s.space, offset)
	if _, err := unix.MmapPtr(fd, 0, at, uintptr(bytes), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		_ = unix.Close(fd)
		return failed(cuda.OutOfMemory, call, bytes, offset)
	}
	handle := d.id()
	d.memory.handles[handle] = &shared{fd: fd, uses: 1}
	d.memory.add(&block{data: unsafe.Slice((*byte)(at), bytes), kind: cuda.PointerDevice, device: s.device, id: d.id(),
		handle: handle, chunk: true, reserved: true, owner: goroutine()})
	return nil
}

// Unmap takes the piece away that begins at an offset; its memory lives on while
// its handle is retained or peers map it.
func (s *Segment) Unmap(offset int64) error {
	const call = "cuMemUnmap at offset %d"
	d := s.driver
	if err := d.in(s.context, "Unmap", call, offset); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if offset < 0 || offset >= s.bytes || !d.drop(s.Address()+cuda.Ptr(offset),
		func(b *block) bool { return b.reserved }) {
		return failed(cuda.InvalidValue, call, offset)
	}
	return nil
}

// Free unmaps what is left and gives the addresses back.
func (s *Segment) Free() error {
	d := s.driver
	if err := d.in(s.context, "FreeSegment", "cuMemAddressFree"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	at := slices.Index(d.memory.segments, s)
	if at < 0 {
		return failed(cuda.InvalidValue, "cuMemAddressFree")
	}
	d.memory.segments = slices.Delete(d.memory.segments, at, at+1)
	for p := s.Address(); p < s.Address()+cuda.Ptr(s.bytes); p += granularity {
		d.drop(p, func(b *block) bool { return b.reserved })
	}
	s.free()
	return nil
}

func (s *Segment) free() { _ = unix.MunmapPtr(s.space, uintptr(s.bytes)) }
