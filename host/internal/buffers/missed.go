package buffers

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// Kernels tell what they have missed, and the goroutine that keeps the directory
// learns of it some time later. An allocation is exported there and then. Memory by
// handle is not: exporting retains its handle, and if the owner unmaps the memory at
// that moment, in another thread, the driver's heap breaks. So it is noted, and the
// next call that is given the memory exports it, before it returns: until then the
// caller keeps the memory. What is done with the descriptors is left to the goroutine.

// span is an address range.
type span struct {
	base  cuda.Ptr
	bytes int64
}

func (s span) overlaps(o span) bool {
	return s.base < o.base+cuda.Ptr(o.bytes) && o.base < s.base+cuda.Ptr(s.bytes)
}

// maxMissed bounds what is noted; the oldest is forgotten, and missed again.
const maxMissed = 16

// candidate is memory on its way into the directory.
type candidate struct {
	info   cuda.PointerInfo
	p      cuda.Ptr
	bytes  int64
	chunks []cuda.Chunk // of memory by handle, exported
	err    error        // or why it could not be
}

// covers reports whether an address range is on its way with a candidate.
func (m candidate) covers(s span) bool {
	base, bytes := m.p, m.bytes
	if n := len(m.chunks); n > 0 {
		base, bytes = m.chunks[0].Address, int64(m.chunks[n-1].Address-m.chunks[0].Address)+m.chunks[n-1].Bytes
	}
	return base <= s.base && int64(s.base-base) <= bytes-s.bytes
}

// full reports whether as many candidates wait as the directory has places, or as hold descriptors of two exports,
// which are few in a process. What does not fit is staged, and missed again unless it is a graph's. t.mu is held.
func (t *Registry) full() bool {
	descriptors := 0
	for _, m := range t.candidates {
		descriptors += len(m.chunks)
	}
	return len(t.candidates) >= plugin.DirectoryExports || descriptors >= 2*maxPieces
}

// take exports memory by handle; allocations are exported as they are adopted. The
// user of the memory keeps it meanwhile.
func (t *Registry) take(info cuda.PointerInfo, p cuda.Ptr, bytes int64) candidate {
	m := candidate{info: info, p: p, bytes: bytes}
	if info.Shareable {
		if m.bytes = max(bytes, 1); m.bytes > maxExport || uint64(p) > math.MaxUint64-uint64(m.bytes) {
			m.err = plugin.Errorf(plugin.InvalidArgument, "the range of %d bytes at %#x does not fit into the address space",
				m.bytes, uint64(p))
			return m
		}
		if m.chunks, m.err = t.gpu.Driver.ExportRange(t.gpu.Context, p, m.bytes, maxPieces); m.err != nil {
			m.err = withoutDescriptors(m.err, 0)
		}
	}
	return m
}

// note takes up what a kernel has missed.
func (t *Registry) note(missed span) error {
	info, err := t.describe(missed.base)
	if err != nil {
		return err
	}
	if !info.Shareable {
		_, err = t.adopt(candidate{info: info, p: missed.base, bytes: missed.bytes}, false)
		return err
	}
	if missed.bytes < 1 || missed.bytes > maxExport || uint64(missed.base) > math.MaxUint64-uint64(missed.bytes) {
		return plugin.Errorf(plugin.Protocol, "a kernel has missed %d bytes at %#x", missed.bytes, uint64(missed.base))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(t.missed, missed) {
		t.missed = append(t.missed, missed)
		t.hurry()
	}
	if len(t.missed) > maxMissed {
		t.missed = slices.Delete(t.missed, 0, 1)
	}
	t.want.Store(int32(len(t.missed)))
	return nil
}

// takeMissed exports the memory of a call if kernels have missed some of it.
func (t *Registry) takeMissed(s span) {
	if s.bytes == 0 || t.want.Load() == 0 {
		return
	}
	t.mu.Lock()
	before := len(t.missed)
	t.missed = slices.DeleteFunc(t.missed, s.overlaps)
	t.want.Store(int32(len(t.missed)))
	found := len(t.missed) < before
	t.mu.Unlock()
	if found {
		t.takeSpan(s)
	}
}

// takeSpan exports the memory of a call, if it is memory by handle that is not
// exported yet.
func (t *Registry) takeSpan(s span) {
	info, err := t.describe(s.base)
	if err != nil || !info.Shareable {
		return
	}
	if at, err := t.exported(info, s.base, s.bytes, false); at >= 0 || err != nil {
		return
	}
	t.mu.Lock()
	before, again := t.failed[allocation{info.BufferID, info.Base}]
	pending := t.full() || slices.ContainsFunc(t.candidates, func(m candidate) bool { return m.covers(s) })
	t.mu.Unlock()
	if again && before.applies(s.bytes) || pending {
		return
	}
	m := t.take(info, s.base, s.bytes)
	t.mu.Lock()
	t.candidates = append(t.candidates, m)
	t.mu.Unlock()
	t.hurry()
}

// TakeCaptured exports the memory of an operation that was captured: replays will
// miss it, and no call may ever be given it again.
func (t *Registry) TakeCaptured(call *call.Call) {
	if t == nil || !t.exec.Capturing() {
		return
	}
	for _, s := range directSpans(call) {
		if s.bytes > 0 {
			t.takeSpan(s)
		}
	}
}

// TakeGroup is takeMissed, or takeCaptured behind it, for a group of receives. A kernel
// wants them within one export; in gaps that are shorter than a piece of memory no piece
// lies that the caller does not keep.
func (t *Registry) TakeGroup(calls []call.Call, captured bool) {
	if t == nil || !captured && t.want.Load() == 0 || captured && !t.exec.Capturing() {
		return
	}
	var list []span
	for i := range calls {
		if n := calls[i].Slots[plugin.SlotRecvBytes]; calls[i].Collective == plugin.Recv && n > 0 {
			list = append(list, span{cuda.Ptr(uintptr(calls[i].Recv)), n})
		}
	}
	slices.SortFunc(list, func(a, b span) int { return cmp.Compare(a.base, b.base) })
	for i := 0; i < len(list); {
		s := list[i]
		for i++; i < len(list) && int64(list[i].base-s.base) < s.bytes+leastPiece; i++ {
			s.bytes = max(s.bytes, int64(list[i].base-s.base)+list[i].bytes)
		}
		switch {
		case s.bytes < directFrom:
		case captured:
			t.takeSpan(s)
		default:
			t.takeMissed(s)
		}
	}
}

// leastPiece is the granularity of memory by handle.
const leastPiece = 2 << 20

// adoptCandidates enters what calls have exported.
func (t *Registry) adoptCandidates() {
	t.mu.Lock()
	list := t.candidates
	t.candidates = nil
	t.mu.Unlock()
	for _, m := range list {
		if _, err := t.adopt(m, false); err != nil {
			t.Logger.Debug("a buffer is staged", "communicator", t.Label, "rank", t.Rank, "address", uint64(m.p), "bytes",
				m.bytes, "reason", err)
		}
	}
}

// hurry makes the goroutine that keeps the directory look at once, and often for a while.
func (t *Registry) hurry() {
	t.changed.Store(true)
	t.rouse()
}

func (t *Registry) rouse() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// noticeMissed makes it look at once if kernels have missed something, which calls see first. The caller is admitted.
func (t *Registry) noticeMissed() {
	if t.exec.HasMissed() {
		t.notice()
	}
}

// notice rouses it at most each keepPeriod: where kernels miss the same again and again, because it cannot be exported,
// it looks hardly more often than without.
func (t *Registry) notice() {
	now, before := time.Since(t.made), t.noticed.Load()
	if now-time.Duration(before) >= keepPeriod && t.noticed.CompareAndSwap(before, int64(now)) {
		t.rouse()
	}
}
