package host

import (
	"slices"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// same reports whether an export is still what an address range stands for, as
// far as it lies in the export: one call of the driver's library, which retains
// nothing and may be made while the memory is being freed.
func (t *directory) same(e *export, p cuda.Ptr, bytes int64) bool {
	if e.window {
		return true
	}
	from, to := e.spanned(p, bytes)
	is, err := t.device.driver.StillMapped(t.device.context, e.pieces[from:to], e.ids[from:to])
	return err == nil && is // an error is memory that is not there
}

// withdraw takes an export back: at once for kernels to come; for peers, who then
// unmap, once the operations that were enqueued so far have ended here. Those wait
// at their ends for what peers do to the memory. t.mu is held.
func (t *directory) withdraw(at int) error {
	e := &t.exports[at]
	if e.leaving != staying {
		return nil
	}
	e.leaving = withdrawn
	t.withdrawns.Add(1)
	return t.device.put(t.table+cuda.Ptr(plugin.DirectoryEntry(at))+16, make([]byte, 8))
}

// mark is called behind an operation on its stream, which follows all operations
// before it. If something was withdrawn, an event says when they have ended. Nothing
// is recorded where the stream is being captured: a later operation will do.
func (t *directory) mark(stream cuda.Stream) error {
	if t == nil || t.withdrawns.Load() == 0 {
		return nil
	}
	d := t.device
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.ContainsFunc(t.exports[:], func(e export) bool { return e.leaving == marked }) {
		return nil // the event stands for those
	}
	state, err := d.driver.CaptureInfo(d.context, stream)
	if err != nil || state.Status != cuda.CaptureNone {
		return err
	}
	if t.passed == 0 {
		if t.passed, err = d.driver.NewEvent(d.context, false); err != nil {
			return err
		}
	}
	if err := d.driver.Record(d.context, t.passed, stream); err != nil {
		return err
	}
	for i := range t.exports {
		if e := &t.exports[i]; e.leaving == withdrawn {
			e.leaving = marked
			t.withdrawns.Add(-1)
		}
	}
	return nil
}

// depart ends the withdrawals that were marked, if the event has passed: peers
// may unmap, and the places are free.
func (t *directory) depart() error {
	d, c := t.device, t.device.comm
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.ContainsFunc(t.exports[:], func(e export) bool { return e.leaving == marked }) {
		return nil
	}
	done, err := d.driver.EventDone(d.context, t.passed)
	if err != nil || !done {
		return err
	}
	for i := range t.exports {
		if e := t.exports[i]; e.leaving == marked {
			if len(t.pages) > 0 {
				t.pages[c.rank].clear(i)
			}
			t.unoffer(i, &e)
			t.vacate(i)
			t.count.Add(-1)
		}
	}
	return nil
}

// validate makes sure, before a call is enqueued, that the exports which its
// buffers lie in are still the allocations that peers have mapped: memory may
// have been freed, and other memory allocated at its address. Then it exports what
// kernels have missed.
func (t *directory) validate(call *call) {
	if t.count.Load() == 0 && t.want.Load() == 0 {
		return
	}
	t.validateRanges(call)
	for _, s := range directSpans(call) {
		t.takeMissed(s)
	}
}

func (t *directory) validateRanges(call *call) {
	if t.count.Load() == 0 {
		return
	}
	for _, s := range directSpans(call) {
		if s.bytes > 0 {
			t.validateRange(s.base, s.bytes)
		}
	}
}

// directSpans is the memory of a call that plans may send past the staging; it has
// no bytes where the message is too short for that.
func directSpans(call *call) [2]span {
	list := [2]span{
		{cuda.Ptr(uintptr(call.send)), call.slots[plugin.SlotSendBytes]},
		{cuda.Ptr(uintptr(call.recv)), call.slots[plugin.SlotRecvBytes]},
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
func (t *directory) validateRange(p cuda.Ptr, bytes int64) {
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
func (t *directory) check(at int, p cuda.Ptr, bytes int64) {
	e := &t.exports[at]
	if e.bytes > 0 && e.leaving == staying && !t.same(e, p, bytes) {
		t.withdrawFreed(at)
	}
}

// lose withdraws an export that the audit has found to be gone.
func (t *directory) lose(at int, generation uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := &t.exports[at]; e.bytes > 0 && e.generation == generation {
		t.withdrawFreed(at)
	}
}

func (t *directory) withdrawFreed(at int) {
	if err := t.withdraw(at); err != nil {
		c := t.device.comm
		c.logger.Warn("a buffer that was freed could not be withdrawn", "communicator", c.label, "rank", c.rank, "reason", err)
	}
}

// closer is a function as an io.Closer.
type closer func() error

func (f closer) Close() error { return f() }
