package executor

import (
	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// order is what keeps operations of one Device behind each other. Every one of
// them uses the same slots and counters, so an operation on a second stream
// waits for the one before it on the first.
//
// While there is one stream, the stream does that, and nothing is recorded. At
// the first change of streams there is no event to wait for, and the old stream
// must not be touched, because its owner may have destroyed it: everything in
// the context is waited for instead (by the new stream, not by the host). From
// then on an event is recorded behind every operation.
//
// Waiting for the whole context breaks every capture in progress on the GPU, so
// where captures are to be expected the event is recorded from the start: see
// recordAll and docs/decisions/0010-quiet-observers.md.
//
// What is captured is ordered within its capture alone: waiting for the outside
// is not possible there, and launches of graphs are the caller's to order.
type order struct {
	used     bool        // something was put into streams outside captures
	stream   cuda.Stream // the last one it was put into
	many     bool        // more than one stream has been used
	marking  bool        // the batch ends with a record of tail
	recorded bool        // tail stands behind all of it
	tail     cuda.Event

	current  *capture // what the last operation was captured into, or nil
	captures map[uint64]*capture
	cross    cuda.Event // recorded in captures, and waited for at once
}

// capture is a capture, or the graph it became.
type capture struct {
	id     uint64
	token  uint64
	used   bool
	stream cuda.Stream // that the last operation was captured from
	side   *forks
}

// Default streams that have names of their own.
const (
	legacyStream    cuda.Stream = 1 // so has 0
	perThreadStream cuda.Stream = 2
)

// permanent reports whether a stream is the default stream, which nobody can
// destroy.
func permanent(s cuda.Stream) bool { return s <= legacyStream }

// follows reports whether what is put into s comes behind what was put into
// last without further ado. The stream of each thread is another one in every
// thread.
func follows(s, last cuda.Stream) bool { return s == last && s != perThreadStream }

// before puts what an operation on s has to wait for into the batch. d.mu is
// held.
func (d *Device) before(s cuda.Stream, c *capture) error {
	o := &d.order
	if c != nil {
		// A stream that took part in a capture cannot have been destroyed before
		// its end, so the event can be recorded now.
		if c.used && !follows(s, c.stream) {
			d.put(cuda.Work{Kind: cuda.WorkRecord, Stream: c.stream, Handle: uint64(o.cross)})
			d.put(cuda.Work{Kind: cuda.WorkWait, Stream: s, Handle: uint64(o.cross)})
		}
		return nil
	}
	if !o.used || follows(s, o.stream) {
		return nil
	}
	o.many = true
	if !o.recorded {
		if err := d.recordTail(); err != nil {
			return d.wrap("putting an operation behind those on another stream", err)
		}
	}
	d.put(cuda.Work{Kind: cuda.WorkWait, Stream: s, Handle: uint64(o.tail)})
	return nil
}

// recordTail records the event behind everything that is not captured. d.mu is
// held.
func (d *Device) recordTail() error {
	o := &d.order
	var err error
	if permanent(o.stream) {
		err = d.driver.Record(d.ctx, o.tail, o.stream)
	} else {
		err = d.driver.RecordContext(d.ctx, o.tail)
	}
	o.recorded = err == nil
	return err
}

// after puts the mark that operations on other streams and those who free
// wait for into the batch.
func (d *Device) after(s cuda.Stream, c *capture) {
	d.order.marking = c == nil && (d.order.many || d.recordAll.Load())
	if d.order.marking {
		d.put(cuda.Work{Kind: cuda.WorkRecord, Stream: s, Handle: uint64(d.order.tail)})
	}
}

// happened notes that the batch, or the part of it before a failure, is in its
// streams.
func (d *Device) happened(s cuda.Stream, c *capture, whole bool) {
	if c != nil {
		c.used, c.stream = true, s
		return
	}
	d.order.used, d.order.stream, d.order.recorded = true, s, d.order.marking && whole
	if d.order.marking && !whole { // the batch's own record may be what did not come about
		d.order.recorded = d.driver.Record(d.ctx, d.order.tail, s) == nil
	}
}

// capture finds what is known about a capture; at first sight its graph gets a
// token, which keeps the Device's resources. d.mu is held.
func (d *Device) capture(c cuda.Capture) (*capture, error) {
	switch {
	case c.Status == cuda.CaptureInvalidated:
		return nil, d.refuse(plugin.Device, "the stream's capture has failed already, by something else that was called during it")
	case c.ID == 0:
		return nil, nil
	}
	if known := d.order.captures[c.ID]; known != nil {
		return known, nil
	}
	d.forget()
	expectCaptures(d)
	token, err := d.retain(c.Graph)
	if err != nil {
		return nil, d.wrap("keeping the communicator for a graph", err)
	}
	known := &capture{id: c.ID, token: token}
	d.order.captures[c.ID] = known
	return known, nil
}
