package memory

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// Mapping is memory of this or another process, mapped here for reading and
// writing.
type Mapping struct {
	base  unsafe.Pointer // of the region
	bytes int64

	mu     sync.Mutex
	start  unsafe.Pointer // of what is mapped; nil once closed
	length uintptr
}

// MapHandle maps what the handle stands for, from its offset to its end. The
// descriptor stays the caller's and may be closed afterwards. Only memfd
// handles can be mapped by the host; others are refused with code Unsupported.
// A handle that promises more than its file holds is refused with code
// Protocol: touching what is not there would end the process.
func MapHandle(h plugin.Handle) (*Mapping, error) {
	bytes := h.Bytes - h.Offset
	switch h.Kind {
	case plugin.HandleKindMemfd:
	case plugin.HandleKindNone:
		return nil, plugin.Errorf(plugin.Unsupported, "the memory was not exported")
	default:
		return nil, plugin.Errorf(plugin.Unsupported, "a handle of kind %s cannot be mapped as host memory", h.Kind)
	}
	if err := checkHandle(h, bytes); err != nil {
		return nil, err
	}
	if bytes == 0 {
		return nil, plugin.Errorf(plugin.InvalidArgument, "a memfd handle of 0 bytes has nothing to map")
	}
	if h.FD < 0 {
		return nil, plugin.Errorf(plugin.Unsupported, "a memfd handle without its descriptor: the memory is on another host")
	}
	if err := checkFile(h); err != nil {
		return nil, err
	}
	// An offset into the middle of a page is mapped from the page's start.
	within := h.Offset % int64(unix.Getpagesize())
	length := uintptr(bytes + within)
	start, err := unix.MmapPtr(h.FD, h.Offset-within, nil, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, systemError(err, "mapping %d bytes", bytes)
	}
	return &Mapping{base: unsafe.Add(start, within), bytes: bytes, start: start, length: length}, nil
}

// checkHandle checks the numbers of a handle, of which bytes are wanted.
func checkHandle(h plugin.Handle, bytes int64) error {
	if h.Bytes < 0 || h.Bytes > maxMapping || h.Offset < 0 || h.Offset > h.Bytes || bytes < 0 || bytes > h.Bytes-h.Offset {
		return plugin.Errorf(plugin.Protocol, "a handle of %d bytes cannot hold %d bytes at offset %d", h.Bytes, bytes,
			h.Offset)
	}
	if len(h.Data) > plugin.MaxHandleData {
		return plugin.Errorf(plugin.Protocol, "a handle has %d bytes of data, want at most %d", len(h.Data),
			plugin.MaxHandleData)
	}
	if h.Generation == 0 && h.Kind != plugin.HandleKindNone {
		return plugin.Errorf(plugin.Protocol, "a %s handle has no generation", h.Kind)
	}
	return nil
}

// checkFile makes sure that the descriptor holds what the handle says, and
// keeps doing so: touching a mapping whose file was cut short kills the process. So only
// memfds are mapped, and one that could still shrink is sealed first and measured
// then.
func checkFile(h plugin.Handle) error {
	seals, err := unix.FcntlInt(uintptr(h.FD), unix.F_GET_SEALS, 0)
	if err == unix.EINVAL { // neither a memfd nor a file of tmpfs
		return plugin.Errorf(plugin.Protocol, "the descriptor of a memfd handle is not a memfd")
	}
	if err != nil {
		return systemError(err, "descriptor %d of a handle", h.FD)
	}
	if seals&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return plugin.Errorf(plugin.Protocol, "the memfd is sealed against writing")
	}
	if seals&unix.F_SEAL_SHRINK == 0 {
		if _, err := unix.FcntlInt(uintptr(h.FD), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
			return plugin.Errorf(plugin.Protocol, "the memfd cannot be sealed against shrinking (create it with MFD_ALLOW_SEALING): %w", err)
		}
	}
	var stat unix.Stat_t
	if err := unix.Fstat(h.FD, &stat); err != nil {
		return systemError(err, "descriptor %d of a handle", h.FD)
	}
	if stat.Size < h.Bytes {
		return plugin.Errorf(plugin.Protocol, "the handle promises %d bytes and its file holds %d", h.Bytes, stat.Size)
	}
	return nil
}

// Base returns the address of the first byte, nil once closed.
func (m *Mapping) Base() unsafe.Pointer { return m.base }

// Bytes returns the length of the mapping.
func (m *Mapping) Bytes() int64 { return m.bytes }

// Slice returns the memory as a slice, valid until Close.
func (m *Mapping) Slice() []byte { return unsafe.Slice((*byte)(m.base), m.bytes) }

// Close takes the memory away. Nothing may use it any more.
func (m *Mapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.start == nil {
		return nil
	}
	start, length := m.start, m.length
	m.start, m.base, m.bytes = nil, nil, 0
	if err := unix.MunmapPtr(start, length); err != nil {
		return systemError(err, "unmapping %d bytes", length)
	}
	return nil
}
