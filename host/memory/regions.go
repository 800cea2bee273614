package memory

import (
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/plugin"
)

// MaxShared is the most regions that one rank may share in one exchange: a message of a Unix socket carries 253
// descriptors.
const MaxShared = 240

const (
	maxSocketName = 100
	maxHostID     = 300
)

// announcement is one rank's part in an exchange: its regions, or why it has
// none to give.
type announcement struct {
	Err     *plugin.Error
	Regions []plugin.Region // FD is 0 where there is a descriptor to fetch, else -1
}

func (a announcement) encode() []byte {
	var w wire.Writer
	w.Error(a.Err)
	w.U16(uint16(len(a.Regions)))
	for _, r := range a.Regions {
		w.U32(r.ID)
		w.U8(uint8(r.Role))
		w.U8(uint8(r.Memory))
		w.I64(r.Bytes)
		w.U8(uint8(r.Handle.Kind))
		w.U64(r.Handle.Generation)
		w.I64(r.Handle.Offset)
		w.I64(r.Handle.Bytes)
		w.Bool(r.Handle.FD >= 0)
		w.Bytes(r.Handle.Data)
	}
	return w.B
}

// decodeAnnouncement reads an announcement and checks every number in it.
func decodeAnnouncement(b []byte) (announcement, error) {
	r := wire.NewReader(b)
	a := announcement{Err: r.Error()}
	for range r.Count(MaxShared, 44) {
		region := plugin.Region{ID: r.U32(), Role: plugin.RegionRole(r.U8()), Memory: plugin.MemoryKind(r.U8()),
			Bytes: r.I64()}
		h := plugin.Handle{Kind: plugin.HandleKind(r.U8()), Generation: r.U64(), Offset: r.I64(), Bytes: r.I64(), FD: -1}
		if r.Bool() {
			h.FD = 0
		}
		h.Data = append(h.Data, r.Bytes(plugin.MaxHandleData)...)
		if r.Err() != nil {
			break
		}
		region.Handle = h
		if err := checkShared(region); err != nil {
			return announcement{}, err
		}
		a.Regions = append(a.Regions, region)
	}
	if err := r.End(); err != nil {
		return announcement{}, err
	}
	return a, nil
}

// checkShared checks a region that ranks exchange.
func checkShared(r plugin.Region) error {
	if r.Role == plugin.RegionRoleLocal {
		return plugin.Errorf(plugin.Protocol, "region %d has role local, which no peer maps", r.ID)
	}
	return checkRegion(r)
}

// checkRegion checks what a region says of itself.
func checkRegion(r plugin.Region) error {
	if r.Role > plugin.RegionRoleDeferred || r.Memory > plugin.MemoryKindCuda || r.Handle.Kind > plugin.HandleKindCudaIpc {
		return plugin.Errorf(plugin.Protocol, "region %d has role %d, memory kind %d and handle kind %d, not all of which are known", r.ID, r.Role, r.Memory, r.Handle.Kind)
	}
	if r.Bytes < 0 {
		return plugin.Errorf(plugin.Protocol, "region %d has %d bytes", r.ID, r.Bytes)
	}
	if r.Handle.Kind == plugin.HandleKindNone {
		return nil
	}
	if err := checkHandle(r.Handle, r.Bytes); err != nil {
		return plugin.Errorf(plugin.Protocol, "region %d: %w", r.ID, err)
	}
	if r.Handle.Kind == plugin.HandleKindMemfd && r.Memory != plugin.MemoryKindHost {
		return plugin.Errorf(plugin.Protocol, "region %d has a memfd handle of %s memory, want host memory", r.ID, r.Memory)
	}
	return nil
}

// descriptorsOf returns the descriptors of regions, in order, without the absent.
func descriptorsOf(regions []plugin.Region) []int {
	var fds []int
	for _, r := range regions {
		if r.Handle.FD >= 0 {
			fds = append(fds, r.Handle.FD)
		}
	}
	return fds
}

// withDescriptors gives the regions, in order, the descriptors they are to
// have: those whose FD is not negative take the next one of fds.
func withDescriptors(regions []plugin.Region, fds []int) []plugin.Region {
	out := make([]plugin.Region, len(regions))
	copy(out, regions)
	for i := range out {
		if out[i].Handle.FD >= 0 {
			out[i].Handle.FD, fds = fds[0], fds[1:]
		}
	}
	return out
}

// duplicate makes own copies of descriptors, all or none.
func duplicate(fds []int) ([]int, error) {
	copies := make([]int, 0, len(fds))
	for _, fd := range fds {
		c, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3) // no standard stream
		if err != nil {
			closeAll(copies)
			return nil, systemError(err, "duplicating descriptor %d", fd)
		}
		copies = append(copies, c)
	}
	return copies, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// CloseAll closes the descriptors that Exchange returned and marks them as
// closed.
func CloseAll(all [][]plugin.Region) {
	for _, regions := range all {
		for i := range regions {
			if h := &regions[i].Handle; h.FD >= 0 {
				unix.Close(h.FD)
				h.FD = -1
			}
		}
	}
}
