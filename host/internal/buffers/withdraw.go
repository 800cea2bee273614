package buffers

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// freed reports whether nothing is mapped at an address any more, or something else than the buffer with the id beside
// it: one call of the driver's library, which retains nothing and may be made while the memory is being freed. Where
// the driver fails, the memory is taken to be there: the next look finds out.
func (g GPU) freed(at []cuda.Ptr, ids []uint64) bool {
	is, err := g.Driver.StillMapped(g.Context, at, ids)
	return err == nil && !is
}

// same reports whether an export is still what an address range stands for, as far as it lies in the export.
func (t *Registry) same(e *export, p cuda.Ptr, bytes int64) bool {
	from, to := e.spanned(p, bytes)
	return e.window || !t.gpu.freed(e.pieces[from:to], e.ids[from:to])
}

// withdraw takes an export back: at once for later kernels; for peers, which then unmap,
// once no kernel uses it any more: see depart. The caller holds t.mu.
func (t *Registry) withdraw(at int) error {
	e := &t.exports[at]
	if e.leaving != staying {
		return nil
	}
	e.leaving = withdrawn
	return t.hide(at)
}

// hide makes kernels to come not find an export that is withdrawn. Until it succeeds, which depart sees to, the export
// stays in its place, and peers keep it mapped. t.mu is held.
func (t *Registry) hide(at int) error {
	err := t.copies.Put(t.table+cuda.Ptr(plugin.DirectoryEntry(at))+16, make([]byte, 8))
	if err == nil {
		t.exports[at].left = time.Now()
	}
	return err
}

// departGrace is the least time between a withdrawal and the reading of the counts. A
// kernel raises its count, and then looks for exports; what it raised reaches memory
// long before.
const departGrace = 5 * time.Millisecond

// depart ends withdrawals when no kernel uses what was withdrawn: peers may unmap, and
// the places are free. It learns that from what kernels count, not from anything in a
// stream: there may be no calls, and replays run no code of the host.
//
// A kernel that has found an export is among those that had begun when it was
// withdrawn, and is over when as many have ended, with their peers' part in it. Where
// one kernel follows another, that may never be seen. But those that look for exports
// run one at a time and find two each at most: when three findings more than there
// were are forgotten, a later one is at work.
func (t *Registry) depart() error {
	now := time.Now()
	ready := func(e *export) bool {
		return e.bytes > 0 && e.leaving != staying && !e.left.IsZero() && now.Sub(e.left) >= departGrace
	}
	some, hidden := false, error(nil)
	t.mu.Lock()
	for i := range t.exports[:t.high] {
		e := &t.exports[i]
		if e.leaving != staying && e.left.IsZero() {
			hidden = errors.Join(hidden, t.hide(i))
		}
		some = some || ready(e)
	}
	t.mu.Unlock()
	if hidden != nil || !some {
		return hidden
	}
	before, err := t.counts()
	if err != nil {
		return err
	}
	after, err := t.counts()
	if err != nil {
		return err
	}
	// What has ended was read first: if that is all that has begun by now, nothing was
	// at work in between.
	idle := before.ended == after.begun && before.forgotten == after.decided
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.exports[:t.high] {
		switch e := &t.exports[i]; {
		case !ready(e):
		case idle || e.leaving == awaited && int64(after.forgotten-e.until) >= 0:
			t.release(i)
		case e.leaving == withdrawn:
			e.leaving, e.until = awaited, after.decided+3
			t.Logger.Debug("a buffer that was freed waits for kernels that may use it", "communicator", t.Label, "rank", t.Rank,
				"address", uint64(e.base),
				"bytes", e.bytes, "begun", after.begun, "ended", before.ended, "decided", after.decided, "forgotten",
				before.forgotten)
		}
	}
	return nil
}

// release lets peers unmap an export. t.mu is held.
func (t *Registry) release(at int) {
	e := &t.exports[at]
	t.Logger.Debug("a buffer is withdrawn from peers", "communicator", t.Label, "rank", t.Rank, "address", uint64(e.base),
		"bytes", e.bytes, "after", time.Since(e.left))
	if len(t.pages) > 0 {
		t.pages[t.Rank].clear(at)
	}
	t.unshare(at, &t.exports[at])
	t.exports[at] = export{}
	for t.high > 0 && t.exports[t.high-1].bytes == 0 {
		t.high--
	}
	t.count.Add(-1)
}

// kernelCounts are the counters of this rank's kernels; see plugin.DirectoryBegun.
type kernelCounts struct{ begun, decided, ended, forgotten uint64 }

func (t *Registry) counts() (kernelCounts, error) {
	raw := make([]byte, plugin.DirectoryUsed)
	err := t.copies.Get(raw, t.table+cuda.Ptr(plugin.DirectoryCounts(t.World)))
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(raw[at:]) }
	return kernelCounts{word(plugin.DirectoryBegun), word(plugin.DirectoryDecided), word(plugin.DirectoryEnded),
		word(plugin.DirectoryForgotten)}, err
}

// Places are scarce when fewer than spareExports are free. Then exports that kernels
// have not found in two looks or more give way, those first that have not been found for
// longest. What is in use stays, and what does not fit is staged.
const (
	spareExports = plugin.DirectoryExports / 4
	evictPeriod  = time.Second
)

func (t *Registry) evict() error {
	if t.count.Load() <= plugin.DirectoryExports-spareExports || time.Since(t.lookedAt) < evictPeriod {
		return nil
	}
	t.lookedAt = time.Now()
	raw := make([]byte, 8*plugin.DirectoryExports)
	if err := t.copies.Get(raw, t.table+cuda.Ptr(plugin.DirectoryCounts(t.World)+plugin.DirectoryUsed)); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var idle []int
	stay := 0
	for i := range t.exports[:t.high] {
		e := &t.exports[i]
		e.idle++
		if used := binary.LittleEndian.Uint64(raw[8*i:]); used != t.used[i] {
			t.used[i], e.idle = used, 0
		}
		if e.bytes == 0 || e.leaving != staying {
			continue
		}
		stay++
		if e.idle > 1 && !e.window && len(e.explicit) == 0 {
			idle = append(idle, i)
		}
	}
	slices.SortFunc(idle, func(a, b int) int { return t.exports[b].idle - t.exports[a].idle })
	for _, i := range idle[:min(len(idle), max(0, stay-(plugin.DirectoryExports-spareExports)))] {
		if err := t.withdraw(i); err != nil {
			return err
		}
	}
	return nil
}

// Validate makes sure, before a call is enqueued, that the exports which its
// buffers lie in are still the allocations that peers have mapped: memory may
// have been freed, and other memory allocated at its address. Then it exports what
// kernels have missed.
func (t *Registry) Validate(call *call.Call) {
	t.ValidateRanges(call)
	if t.want.Load() == 0 {
		return
	}
	for _, s := range directSpans(call) {
		t.takeMissed(s)
	}
}

// ValidateRanges looks whether the memory that a call names is still what peers have mapped.
func (t *Registry) ValidateRanges(call *call.Call) {
	t.noticeMissed()
	if t.count.Load() == 0 {
		return
	}
	for _, s := range directSpans(call) {
		if s.bytes > 0 {
			t.validateRange(s.base, s.bytes)
		}
	}
}

// directSpans returns the memory of a call that plans may send past the staging; it has
// no bytes where the message is too short for that.
func directSpans(call *call.Call) [2]span {
	list := [2]span{
		{cuda.Ptr(uintptr(call.Send)), call.Slots[plugin.SlotSendBytes]},
		{cuda.Ptr(uintptr(call.Recv)), call.Slots[plugin.SlotRecvBytes]},
	}
	for i := range list {
		if list[i].bytes < directFrom {
			list[i].bytes = 0
		}
	}
	return list
}

// directFrom is the shortest message that plans send past the staging; what is
// shorter is not looked up.
const directFrom = 256 << 10

// validateRange withdraws the exports that an address range lies in, in part or
// as a whole, and no longer stands for.
func (t *Registry) validateRange(p cuda.Ptr, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.exports[:t.high] {
		if e := &t.exports[i]; e.bytes > 0 && p < e.base+cuda.Ptr(e.bytes) && e.base < p+cuda.Ptr(bytes) {
			t.check(i, p, bytes)
		}
	}
}

// check withdraws an export if an address range is no longer part of it. t.mu is
// held.
func (t *Registry) check(at int, p cuda.Ptr, bytes int64) {
	e := &t.exports[at]
	if e.bytes > 0 && e.leaving == staying && !t.same(e, p, bytes) {
		t.withdrawFreed(at)
	}
}

// lose withdraws an export that the audit has found to be gone.
func (t *Registry) lose(at int, generation uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := &t.exports[at]; e.bytes > 0 && e.generation == generation {
		t.withdrawFreed(at)
	}
}

func (t *Registry) withdrawFreed(at int) {
	if err := t.withdraw(at); err != nil {
		t.Logger.Warn("a buffer that was freed could not be withdrawn", "communicator", t.Label, "rank", t.Rank, "reason",
			err)
	}
}

// closer is a function as an io.Closer.
type closer func() error

func (f closer) Close() error { return f() }
