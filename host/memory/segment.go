package memory

import (
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
)

// ControlPageBytes is the size of the page through which executors wake each
// other and publish what they run.
const ControlPageBytes = 4096

// generations tells apart what this process made; 0 is no generation.
var generations atomic.Uint64

// Segment is zero-filled shared memory of this process, held by a descriptor.
// It lives as long as the descriptor, or any mapping of it.
type Segment struct {
	handle plugin.Handle
}

// NewSegment makes a memfd of the given size, which cannot be changed any
// more. name shows up in /proc/PID/maps.
func NewSegment(name string, bytes int64) (*Segment, error) {
	if bytes <= 0 || bytes > maxMapping {
		return nil, plugin.Errorf(plugin.InvalidArgument, "segment %s: %d bytes, want 1 to %d", name, bytes,
			int64(maxMapping))
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, systemError(err, "segment %s of %d bytes: memfd_create", name, bytes)
	}
	if err := unix.Ftruncate(fd, bytes); err != nil {
		unix.Close(fd)
		return nil, systemError(err, "segment %s of %d bytes: ftruncate", name, bytes)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		unix.Close(fd)
		return nil, systemError(err, "segment %s of %d bytes: sealing", name, bytes)
	}
	return &Segment{plugin.Handle{Kind: plugin.HandleKindMemfd, Generation: generations.Add(1), Bytes: bytes, FD: fd}}, nil
}

// NewControlPage makes a rank's control page, with so many bytes behind it.
func NewControlPage(behind int64) (*Segment, error) {
	return NewSegment("shunt-control", ControlPageBytes+behind)
}

// Handle lets peers map the segment. The descriptor stays the segment's.
func (s *Segment) Handle() plugin.Handle { return s.handle }

// Region returns the whole segment as region 0.
func (s *Segment) Region() plugin.Region {
	return plugin.Region{Role: plugin.RegionRolePrivate, Memory: plugin.MemoryKindHost, Bytes: s.handle.Bytes,
		Handle: s.handle}
}

// Map maps the segment here.
func (s *Segment) Map() (*Mapping, error) { return MapHandle(s.handle) }

// CloseFD closes the descriptor; mappings stay.
func (s *Segment) CloseFD() error {
	if s.handle.FD < 0 {
		return nil
	}
	err := unix.Close(s.handle.FD)
	s.handle.FD = -1
	if err != nil {
		return systemError(err, "closing a segment")
	}
	return nil
}

// maxMapping bounds one mapping: half of what user space can address.
const maxMapping = math.MaxInt64 >> 17

// systemError is plugin.SystemError, with what to do about a lack of descriptors.
func systemError(err error, format string, args ...any) error {
	return plugin.SystemError(descriptors.Advise(err, 1), format, args...)
}
