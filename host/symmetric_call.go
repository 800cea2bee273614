package host

import (
	"fmt"
	"slices"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// insert adds a range.
func (s *symmetricRanges) insert(r *symmetricRange) {
	at, _ := slices.BinarySearchFunc(s.sorted, r.base, func(r *symmetricRange, p cuda.Ptr) int {
		if r.base < p {
			return -1
		}
		return 1
	})
	s.sorted, s.gapBytes = slices.Insert(s.sorted, at, r), 0
}

func (s *symmetricRanges) remove(r *symmetricRange) {
	s.sorted, s.gapBytes = slices.DeleteFunc(s.sorted, func(other *symmetricRange) bool { return other == r }), 0
}

// find is the range that holds an address, or nil. It does not allocate.
func (s *symmetricRanges) find(p cuda.Ptr) *symmetricRange {
	if p-s.gap < s.gapBytes {
		return nil
	}
	lo, hi := 0, len(s.sorted) // the last range that begins at or before p is below hi
	for lo < hi {
		if mid := (lo + hi) / 2; s.sorted[mid].base <= p {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	from, to := cuda.Ptr(0), ^cuda.Ptr(0)
	if lo > 0 {
		r := s.sorted[lo-1]
		if p-r.base < cuda.Ptr(r.bytes) {
			return r
		}
		from = r.base + cuda.Ptr(r.bytes)
	}
	if lo < len(s.sorted) {
		to = s.sorted[lo].base
	}
	s.gap, s.gapBytes = from, to-from
	return nil
}

func (s *symmetricRanges) overlapping(r *symmetricRange) *symmetricRange {
	for _, other := range s.sorted {
		if r.base < other.base+cuda.Ptr(other.bytes) && other.base < r.base+cuda.Ptr(r.bytes) {
			return other
		}
	}
	return nil
}

// promised reports whether a collective's calls can be symmetric: every rank
// receives, equally much, and there are algorithms for it.
func promised(collective plugin.Collective) bool {
	switch collective {
	case plugin.AllReduce, plugin.AllGather, plugin.AllToAll, plugin.Broadcast, plugin.Scatter:
		return true
	}
	return false
}

// mark makes a checked call symmetric if all its receive memory lies in a range, which it returns.
func (s *symmetricRanges) mark(call *call.Call, world int) *symmetricRange {
	p, n := cuda.Ptr(uintptr(call.Recv)), call.Slots[plugin.SlotRecvBytes]
	if len(s.sorted) == 0 || n == 0 || world == 1 || !promised(call.Collective) {
		return nil
	}
	r := s.find(p)
	if r == nil || int64(p-r.base) > r.bytes-n {
		return nil
	}
	call.Symmetric = true
	call.Slots[plugin.SlotWindow], call.Slots[plugin.SlotOffset] = r.number, int64(p-r.base)
	return r
}

// peerRecv is where every rank's receive memory of a call in a range is. It is valid until the next call.
func (s *symmetricRanges) peerRecv(r *symmetricRange, offset int64) []cuda.Ptr {
	if r == nil {
		return nil
	}
	s.peers = s.peers[:0]
	for _, address := range r.addresses {
		s.peers = append(s.peers, address+cuda.Ptr(offset))
	}
	return s.peers
}

// asymmetric is why a kernel found that symmetric memory is not used alike.
func (c *Communicator) asymmetric(peer int, own, theirs [3]uint64) *plugin.Error {
	place := func(w [3]uint64) string {
		text := fmt.Sprintf("%d bytes at offset %d of symmetric range %d", w[2]&^plugin.InPlace, w[1], w[0])
		switch {
		case (own[2]^theirs[2])&plugin.InPlace == 0:
		case w[2]&plugin.InPlace != 0:
			text += ", in place"
		default:
			text += ", out of place"
		}
		return text
	}
	reason := &plugin.Error{Code: plugin.Mismatch, Rank: c.rank, Message: fmt.Sprintf(
		"ranks disagree: rank %d receives into %s, rank %d into %s", c.rank, place(own), peer, place(theirs))}
	if peer >= 0 && peer < c.world {
		reason.Rank = peer
	}
	return reason
}

// has reports whether a range's export is still in its place, and not on its way out.
func (t *directory) has(r *symmetricRange) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &t.exports[r.export]
	return e.bytes > 0 && e.generation == r.generation && e.leaving == staying
}

// current makes sure that the memory of a symmetric call is still what peers have
// mapped. validate has looked at the export; one that was withdrawn may have been
// so for memory beside the range, which peers hold mapped all the same.
func (t *directory) current(collective plugin.Collective, r *symmetricRange) error {
	if r == nil || r.export < 0 || t.has(r) {
		return nil
	}
	d, c := t.device, t.device.comm
	if is, err := d.driver.StillMapped(d.context, r.pieces, r.ids); err == nil && is { // an error is memory that is not there
		return nil
	}
	return plugin.Errorf(plugin.InvalidArgument, "%s on rank %d: symmetric range %d, %d bytes at %#x, was freed before it was deregistered", collective, c.rank, r.number, r.bytes, uint64(r.base))
}
