package executor

import (
	"fmt"

	"github.com/shunt-ccl/shunt/plugin"
)

// address returns the address of n bytes of a ref, checked against the memory that it is
// in; for n = 0 it may be that memory's end, and 0 where there is none.
func (r *deviceRun) address(number uint16, n int64) (uint64, *Failure) {
	ref, frame := &r.p.plan.Refs[number], r.p.frame
	var base uint64
	var length int64
	rank := -1
	if r.a.Absolute && (ref.Space == plugin.SpaceSend || ref.Space == plugin.SpaceRecv) {
		return uint64(frame[ref.Offset]), nil
	}
	switch ref.Space {
	case plugin.SpaceSend:
		base, length = uint64(uintptr(r.a.Send)), r.a.Slots[plugin.SlotSendBytes]
	case plugin.SpaceRecv:
		base, length = uint64(uintptr(r.a.Recv)), r.a.Slots[plugin.SlotRecvBytes]
	case plugin.SpacePeerRecv:
		peer := frame[ref.Rank]
		if peer < 0 || peer >= int64(r.d.world) {
			return 0, r.failure(plugin.Internal, -1, "there is no rank %d in a world of %d", peer, r.d.world)
		}
		rank = int(peer)
		if len(r.a.PeerRecv) == 0 {
			return 0, r.failure(plugin.Protocol, rank, "the receive memory of rank %d is needed, but the call is not symmetric",
				rank)
		}
		base, length = uint64(r.a.PeerRecv[rank]), r.a.Slots[plugin.SlotRecvBytes]
	case plugin.SpaceAbort:
		return uint64(r.d.word.Device), nil
	default:
		m, f := r.region(ref)
		if f != nil {
			return 0, f
		}
		base, length, rank = uint64(m.address), m.bytes, int(frame[ref.Rank])
	}
	offset := frame[ref.Offset]
	if offset < 0 || n > length || offset > length-n {
		return 0, r.failure(plugin.Internal, rank, "%d bytes at offset %d exceed %s of %d bytes", n, offset, r.what(ref), length)
	}
	if base == 0 {
		if length > 0 {
			return 0, r.failure(plugin.InvalidArgument, rank, "%s is null but has %d bytes", r.what(ref), length)
		}
		return 0, nil
	}
	return base + uint64(offset), nil
}

func (r *deviceRun) region(ref *plugin.Ref) (deviceRegion, *Failure) {
	frame, d := r.p.frame, r.d
	rank, id := frame[ref.Rank], frame[ref.Region]
	if rank < 0 || rank >= int64(d.world) {
		return deviceRegion{}, r.failure(plugin.Internal, -1, "there is no rank %d in a world of %d", rank, d.world)
	}
	if id < 0 || id >= MaxEntries {
		return deviceRegion{}, r.failure(plugin.Internal, int(rank), "there is no region %d", id)
	}
	entry := uint64(r.p.base) + uint64(id)
	if chunk := entry / BaseMultiple; chunk < uint64(len(d.regions)) && d.regions[chunk] != nil {
		if m := d.regions[chunk][int(entry%BaseMultiple)*d.world+int(rank)]; m.set {
			return m, nil
		}
	}
	return deviceRegion{}, r.failure(plugin.Internal, int(rank), "there is no region %d of rank %d", id, rank)
}

func (r *deviceRun) what(ref *plugin.Ref) string {
	switch ref.Space {
	case plugin.SpaceSend:
		return "the send memory"
	case plugin.SpaceRecv:
		return "the receive memory"
	case plugin.SpacePeerRecv:
		return fmt.Sprintf("the receive memory of rank %d", r.p.frame[ref.Rank])
	}
	return fmt.Sprintf("region %d of rank %d", r.p.frame[ref.Region], r.p.frame[ref.Rank])
}
