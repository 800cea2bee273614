package buffers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// insert adds a range.
func (s *Symmetric) insert(r *Range) {
	at, _ := slices.BinarySearchFunc(s.sorted, r.base, func(r *Range, p cuda.Ptr) int {
		if r.base < p {
			return -1
		}
		return 1
	})
	s.sorted = slices.Insert(s.sorted, at, r)
	s.changed()
}

// Remove ends a range; nil is none.
func (s *Symmetric) Remove(r *Range) {
	s.sorted = slices.DeleteFunc(s.sorted, func(other *Range) bool { return other == r })
	s.changed()
}

// changed is called after every change of the ranges.
func (s *Symmetric) changed() {
	s.gapBytes, s.reach = 0, s.reach[:0]
	end := cuda.Ptr(0)
	for _, r := range s.sorted {
		end = max(end, r.base+cuda.Ptr(r.bytes))
		s.reach = append(s.reach, end)
	}
}

// Find returns the range that holds bytes from p on, or nil. Of several it is the one that was registered last: as
// ranges overlap alike on all ranks, it is the same on all. It does not allocate.
func (s *Symmetric) Find(p cuda.Ptr, bytes int64) (found *Range) {
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
		from = s.reach[lo-1]
	}
	if from <= p {
		if lo < len(s.sorted) {
			to = s.sorted[lo].base
		}
		s.gap, s.gapBytes = from, to-from
		return nil
	}
	for i := lo - 1; i >= 0 && s.reach[i] > p; i-- {
		r := s.sorted[i]
		if behind := p - r.base; behind < cuda.Ptr(r.bytes) && bytes <= r.bytes-int64(behind) &&
			(found == nil || found.number < r.number) {
			found = r
		}
	}
	return found
}

// overlapping returns the ranges that another one overlaps, in the order in which they were registered.
func (s *Symmetric) overlapping(r *Range) (found []*Range) {
	for _, other := range s.sorted {
		if r.base < other.base+cuda.Ptr(other.bytes) && other.base < r.base+cuda.Ptr(r.bytes) {
			found = append(found, other)
		}
	}
	slices.SortFunc(found, func(a, b *Range) int { return cmp.Compare(a.number, b.number) })
	return found
}

// overlaps says what a range overlaps.
func overlaps(of []overlap) string {
	if len(of) == 0 {
		return "overlaps none"
	}
	var b strings.Builder
	b.WriteString("begins")
	for i, o := range of {
		if i > 0 {
			b.WriteString(" and")
		}
		fmt.Fprintf(&b, " %+d bytes from the beginning of range %d", o.Behind, o.Number)
	}
	return b.String()
}

// Mark makes a checked call symmetric if all its receive memory lies in a range, which it returns.
func (s *Symmetric) Mark(call *call.Call) *Range {
	p, n := cuda.Ptr(uintptr(call.Recv)), call.Slots[plugin.SlotRecvBytes]
	if len(s.sorted) == 0 || n == 0 || s.observer.World == 1 || !call.CanBeSymmetric() {
		return nil
	}
	r := s.Find(p, n)
	if r == nil {
		return nil
	}
	call.Symmetric = true
	call.Slots[plugin.SlotWindow], call.Slots[plugin.SlotOffset] = r.number, int64(p-r.base)
	return r
}

// PeerRecv returns the addresses of all ranks' receive memory of a call in a range. They are valid until the next call.
func (s *Symmetric) PeerRecv(r *Range, offset int64) []cuda.Ptr {
	if r == nil {
		return nil
	}
	s.peers = s.peers[:0]
	for _, address := range r.addresses {
		s.peers = append(s.peers, address+cuda.Ptr(offset))
	}
	return s.peers
}

// has reports whether a range's export is still in its place, and not on its way out.
func (t *Registry) has(r *Range) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.is(r.export)
}

// Current makes sure that the memory of a symmetric call is still what peers have
// mapped. validate has looked at the export; one that was withdrawn may have been
// so for memory beside the range, which peers hold mapped all the same.
func (t *Registry) Current(collective plugin.Collective, r *Range) error {
	if r == nil || r.export == nil || t.has(r) {
		return nil
	}
	if !t.gpu.freed(r.pieces, r.ids) {
		return nil
	}
	return plugin.Errorf(plugin.InvalidArgument, "%s on rank %d: symmetric range %d, %d bytes at %#x, was freed before it was deregistered", collective, t.Rank, r.number, r.bytes, uint64(r.base))
}
