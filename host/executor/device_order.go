package executor

import (
	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// order keeps operations of one Device behind each other. Every one of
// them uses the same slots and counters, so an operation on another stream than
// the one before it waits for that one.
//
// An event is recorded behind every operation, in the same call of the driver's
// library. Recording it when another stream turns up would be cheaper and wrong:
// the old stream may be destroyed by then, or captured. What waits and what frees
// wait for the operation and for nothing else in the context; see
// docs/decisions/0019-streams.md. Where something is to be freed, a second event
// behind the next operation stays until it is over, as the first one is recorded
// anew by every operation, and not over while the host runs ahead.
//
// Whether two streams are one is a matter of the driver's numbers, as the handle of
// a destroyed stream comes back, and that of the threads' own streams is one for
// all.
//
// What is captured is ordered within its capture alone: waiting for the outside
// is not possible there, and launches of graphs are the caller's to order.
type order struct {
	used     bool        // something was put into streams outside captures
	stream   cuda.Stream // the last one it was put into,
	id       uint64      // and its number; 0: the driver does not say
	priority int64       // of that stream, see Device.priority
	recorded bool        // tail stands behind all of it; false after a failure of the driver
	tail     cuda.Event

	mark    cuda.Event // stands behind the operations before the Device held
	marked  uint64     // the thing of this number,
	marking bool       // and is not known to be over

	current  *capture // what the last operation was captured into, or nil
	captures map[uint64]*capture
	spare    []cuda.Event // tails of captures whose graphs are gone
	cross    cuda.Event   // recorded in captures, and waited for at once
}

// capture is a capture, or the graph it became.
type capture struct {
	id     uint64
	token  uint64
	used   bool
	stream cuda.Stream // that the last operation was captured from
	tail   cuda.Event  // stands behind that operation where stream is the one of its thread
}

// same returns the number that s must have to be the stream of the last operation
// outside captures; false: it is another one.
func (o *order) same(s cuda.Stream) (id uint64, ok bool) {
	return o.id, o.used && s == o.stream && (o.id != 0 || s != cuda.PerThreadStream)
}

// before puts what an operation on s has to wait for into the batch; follows says
// that outside captures it is nothing. d.mu is held.
func (d *Device) before(s cuda.Stream, follows bool, c *capture) error {
	o := &d.order
	if c != nil {
		// A stream that took part in a capture cannot have been destroyed before
		// its end, so the event can be recorded now.
		switch {
		case !c.used:
		case c.stream == cuda.PerThreadStream: // on another thread it is another stream
			d.put(cuda.Work{Kind: cuda.WorkWait, Stream: s, Handle: uint64(c.tail)})
		case s != c.stream:
			d.put(cuda.Work{Kind: cuda.WorkRecord, Stream: c.stream, Handle: uint64(o.cross)})
			d.put(cuda.Work{Kind: cuda.WorkWait, Stream: s, Handle: uint64(o.cross)})
		}
		return nil
	}
	if !o.used || follows {
		return nil
	}
	if !o.recorded {
		return d.refuse(plugin.Device, "the driver failed after the previous operation, so its end cannot be observed")
	}
	d.put(cuda.Work{Kind: cuda.WorkWait, Stream: s, Handle: uint64(o.tail)})
	return nil
}

// after adds to the batch the events that operations on other streams, and the freeing of
// memory, wait for.
func (d *Device) after(s cuda.Stream, c *capture) {
	if c != nil {
		if s == cuda.PerThreadStream {
			d.put(cuda.Work{Kind: cuda.WorkRecord, Stream: s, Handle: uint64(c.tail)})
		}
		return
	}
	if d.marks = d.queued.Load(); d.marks != d.order.marked && !d.order.marking {
		d.put(cuda.Work{Kind: cuda.WorkRecord, Stream: s, Handle: uint64(d.order.mark)})
	}
	d.put(cuda.Work{Kind: cuda.WorkRecord, Stream: s, Handle: uint64(d.order.tail)})
}

// happened notes that the batch, or the part of it before a failure, is in its
// streams, s among them, whose number is id.
func (d *Device) happened(s cuda.Stream, id uint64, c *capture, whole bool) {
	if c != nil {
		c.used, c.stream = true, s
		return
	}
	d.order.used, d.order.stream, d.order.id, d.order.priority = true, s, id, d.priority
	if whole && d.marks != d.order.marked && !d.order.marking {
		d.order.marked, d.order.marking = d.marks, true
	}
	// The batch's own record may be what did not come about, or what its tracks end with.
	d.order.recorded = whole || d.side.rejoin(d, s) == nil && d.driver.Record(d.ctx, d.order.tail, s) == nil
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
	token, err := d.retain(c.Graph)
	if err != nil {
		what := "keeping the communicator for a graph"
		switch cuda.ResultOf(err) {
		case cuda.InvalidValue, cuda.NotPermitted, cuda.NotSupported:
			// Nothing says of a graph that it is a body; of one that is its own this does not happen.
			what += ", which may be the body of a conditional node"
		}
		return nil, d.wrap(what, err)
	}
	known := &capture{id: c.ID, token: token}
	d.order.captures[c.ID] = known
	return known, nil
}
