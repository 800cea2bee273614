package executor

import (
	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// DeviceLaunch is one operation of RunBatch.
type DeviceLaunch struct {
	Program   *DeviceProgram
	Arguments Arguments
}

// Run puts a program's work into a stream and returns; it neither waits nor
// allocates, and makes one call of the driver's library, or two where the plan
// asks for the priority of another stream; in captures a few more. Send and Recv are addresses that the
// GPU reaches. It is legal while the stream is captured. If the arguments or the
// plan are wrong nothing was put into the stream; the error's cause is then a
// *Failure. A failure of the driver may leave part of the work there.
func (d *Device) Run(p *DeviceProgram, a *Arguments, stream cuda.Stream) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.one[0] = DeviceLaunch{p, *a}
	return d.run(d.one[:], stream)
}

// Capturing reports whether the last operation was captured.
func (d *Device) Capturing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.order.current != nil
}

// RunBatch runs several operations as Run does, in order, with as few calls of the
// driver's library. If one of them is wrong nothing was put into the stream; if the driver fails
// the error says at which, and those before it are there.
func (d *Device) RunBatch(ls []DeviceLaunch, stream cuda.Stream) error {
	if len(ls) == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.run(ls, stream)
}

func (d *Device) run(ls []DeviceLaunch, stream cuda.Stream) error {
	if err := d.admit(ls); err != nil {
		return err
	}
	forgetPlace(ls)
	c, err := d.capturing(stream)
	if err != nil {
		return err
	}
	id, same := d.order.same(stream) // most likely the stream has stayed; the driver knows
	for {
		if err := d.build(ls, stream, same, c); err != nil {
			return err
		}
		if d.batch.StreamID = 0; same {
			d.batch.StreamID = id
		}
		done, state, err := d.driver.Submit(d.ctx, &d.batch)
		if err != nil {
			if done > 0 {
				d.happened(stream, state.Stream, c, false)
			}
			return d.partly(ls, done, err)
		}
		switch {
		case state.ID != d.batch.Capture || state.Status == cuda.CaptureInvalidated:
			if c, err = d.capture(state); err != nil {
				return err
			}
		case c == nil && same && id != 0 && state.Stream != 0 && state.Stream != id:
			same = false // the handle is another stream's by now
		default:
			d.order.current = c
			d.happened(stream, state.Stream, c, true)
			d.wake()
			return nil
		}
	}
}

// capturing returns the capture that stream is in, or nil where the last operation was not captured either: then most
// likely this one is not, and the driver says so with its first work.
func (d *Device) capturing(stream cuda.Stream) (*capture, error) {
	if d.order.current == nil {
		return nil, nil
	}
	state, err := d.driver.CaptureInfo(d.ctx, stream)
	if err != nil {
		return nil, d.wrap("asking whether the stream is captured", err)
	}
	return d.capture(state)
}

// admit checks what does not depend on the plans.
func (d *Device) admit(ls []DeviceLaunch) error {
	if d.closed {
		return d.refuse(plugin.Closed, "it is closed")
	}
	if d.aborted.Load() {
		return d.refuse(plugin.Aborted, "the communicator is aborted")
	}
	for i := range ls {
		if ls[i].Program == nil || ls[i].Program.device != d {
			return d.refuse(plugin.InvalidArgument, "the program is freed or of another device")
		}
		if n := len(ls[i].Arguments.Arrays); n != 0 && n != 4*d.world {
			return d.refuse(plugin.InvalidArgument, "%d entries of per-rank arrays, want %d", n, 4*d.world)
		}
		if n := len(ls[i].Arguments.PeerRecv); n != 0 && n != d.world {
			return d.refuse(plugin.InvalidArgument, "receive memory of %d ranks, want %d", n, d.world)
		}
	}
	return nil
}

// build puts the work of launches together for a stream that is being captured
// into c, or not at all; follows says that it is the stream of the operation before.
func (d *Device) build(ls []DeviceLaunch, stream cuda.Stream, follows bool, c *capture) error {
	b := &d.batch
	d.posting = false
	b.Stream, b.Capture, b.Work, b.Params, d.pieces = stream, 0, b.Work[:0], b.Params[:0], d.pieces[:0]
	dependent := d.dependentEager
	if c != nil {
		b.Capture, dependent = c.id, d.dependentGraph
		if stream == cuda.PerThreadStream && c.tail == 0 {
			if n := len(d.order.spare); n > 0 {
				c.tail, d.order.spare = d.order.spare[n-1], d.order.spare[:n-1]
			} else if err := d.newEvent(&c.tail); err != nil {
				return d.wrap("creating an event", err)
			}
		}
	}
	if err := d.before(stream, follows, c); err != nil {
		return err
	}
	d.prioritize(ls, stream, follows && c == nil)
	for i := range ls {
		p := ls[i].Program
		sides, err := d.sides(c, p.tracks())
		if err != nil {
			return err
		}
		d.pieces = append(d.pieces, len(b.Work))
		r := deviceRun{d: d, p: p, a: &ls[i].Arguments, main: stream, sides: sides, budget: maxDeviceSteps,
			first: len(b.Work)}
		if dependent {
			r.flags = cuda.LaunchDependent
		}
		if f := r.launch(); f != nil {
			if len(ls) > 1 {
				f.Launch = i
			}
			return d.fail(f)
		}
	}
	d.after(stream, c)
	return nil
}
