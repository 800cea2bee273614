package cudatest

import (
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
)

// CreateMemory returns a memfd, rounded up to 2 MiB and mapped. Like Alloc's it is not zeroed: it holds 0xCD in the
// first 2 MiB, and at both ends of each further 2 MiB.
func (d *Driver) CreateMemory(ctx cuda.Context, device int, bytes int64) (cuda.Mapping, error) {
	if err := d.in(ctx, "CreateMemory", "cuMemCreate of %d bytes on device %d", bytes, device); err != nil {
		return cuda.Mapping{}, err
	}
	defer d.mu.Unlock()
	if bytes <= 0 || !d.has(device) {
		return cuda.Mapping{}, failed(cuda.InvalidValue, "cuMemCreate of %d bytes on device %d", bytes, device)
	}
	bytes = (bytes + granularity - 1) / granularity * granularity
	if d.limit > 0 && d.memory.made(device)+bytes > d.limit {
		return cuda.Mapping{}, failed(cuda.OutOfMemory, "cuMemCreate of %d bytes on device %d", bytes, device)
	}
	fd, err := newFD(bytes)
	if err != nil {
		return cuda.Mapping{}, failed(cuda.OutOfMemory, "cuMemCreate of %d bytes on device %d", bytes, device)
	}
	m, err := d.adopt(fd, device, bytes, false)
	if err == nil {
		b := d.memory.blocks[uint64(m.Address)]
		b.made = true
		poisonEnds(b.data)
	}
	return m, err
}

// Limit makes CreateMemory run out of memory where a device has more than this many bytes of it; 0 is no limit.
func (d *Driver) Limit(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = bytes
}

// made returns the bytes of CreateMemory on a device.
func (m *memory) made(device int) (bytes int64) {
	for _, b := range m.blocks {
		if b.made && b.device == device {
			bytes += int64(len(b.data))
		}
	}
	return bytes
}

// adopt maps a descriptor that becomes the driver's.
func (d *Driver) adopt(fd, device int, bytes int64, imported bool) (cuda.Mapping, error) {
	data, err := mapFD(fd, bytes)
	if err != nil {
		_ = unix.Close(fd)
		return cuda.Mapping{}, failed(cuda.InvalidValue, "cuMemMap of %d bytes", bytes)
	}
	handle := d.id()
	d.memory.handles[handle] = &shared{fd: fd, uses: 1, imported: imported}
	p := d.memory.add(&block{data: data, kind: cuda.PointerDevice, device: device, id: d.id(), handle: handle,
		owner: goroutine()})
	return cuda.Mapping{Address: p, Bytes: bytes, Handle: handle}, nil
}

// ExportMemory duplicates the memfd.
func (d *Driver) ExportMemory(ctx cuda.Context, handle uint64) (int, error) {
	if err := d.in(ctx, "ExportMemory", "cuMemExportToShareableHandle"); err != nil {
		return -1, err
	}
	defer d.mu.Unlock()
	s := d.memory.handles[handle]
	if s == nil || s.imported {
		return -1, failed(cuda.InvalidValue, "cuMemExportToShareableHandle")
	}
	fd, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, failed(cuda.OutOfMemory, "cuMemExportToShareableHandle")
	}
	return fd, nil
}

// ImportMemory maps a memfd of any cudatest driver, of this process or another.
func (d *Driver) ImportMemory(ctx cuda.Context, device, fd int, bytes int64) (cuda.Mapping, error) {
	const call = "cuMemImportFromShareableHandle of file descriptor %d, %d bytes, for device %d"
	if err := d.in(ctx, "ImportMemory", call, fd, bytes, device); err != nil {
		return cuda.Mapping{}, err
	}
	defer d.mu.Unlock()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || bytes <= 0 || bytes > st.Size || bytes%granularity != 0 ||
		!d.has(device) {
		return cuda.Mapping{}, failed(cuda.InvalidValue, call, fd, bytes, device)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return cuda.Mapping{}, failed(cuda.OutOfMemory, call, fd, bytes, device)
	}
	return d.adopt(own, device, bytes, true)
}

// Unmap ends a Mapping.
func (d *Driver) Unmap(ctx cuda.Context, m cuda.Mapping) error {
	if err := d.in(ctx, "Unmap", "cuMemUnmap of %d bytes at %#x", m.Bytes, uint64(m.Address)); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if !d.drop(m.Address, func(b *block) bool { return b.handle == m.Handle && int64(len(b.data)) == m.Bytes }) {
		return failed(cuda.InvalidValue, "cuMemUnmap of %d bytes at %#x", m.Bytes, uint64(m.Address))
	}
	return nil
}
