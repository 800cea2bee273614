package executor

import (
	"github.com/shunt-ccl/shunt/cuda"
)

// maxSides is the most streams besides the caller's over which the tracks of a plan are
// spread; more tracks than that take turns.
const maxSides = 15

// forks are streams for the tracks of a plan, with the events that begin and
// end their work. Streams that took part in a capture belong to it until it
// ends, so captures have forks of their own; events recorded in captures and
// others never mix for the same reason.
type forks struct {
	begin   cuda.Event
	streams []cuda.Stream
	ends    []cuda.Event
}

// grow makes streams until there are n. d.mu is held.
func (f *forks) grow(d *Device, n int) error {
	n = min(n, maxSides)
	if f.begin == 0 && n > 0 {
		if err := d.newEvent(&f.begin); err != nil {
			return err
		}
	}
	for len(f.streams) < n {
		var e cuda.Event
		if err := d.newEvent(&e); err != nil {
			return err
		}
		s, err := d.driver.NewStream(d.ctx, 0)
		if err != nil {
			_ = d.driver.DestroyEvent(d.ctx, e)
			return err
		}
		f.streams, f.ends = append(f.streams, s), append(f.ends, e)
	}
	return nil
}

func (f *forks) free(d *Device) error {
	var first error
	note := func(err error) {
		if first == nil {
			first = err
		}
	}
	if f.begin != 0 {
		note(d.driver.DestroyEvent(d.ctx, f.begin))
	}
	for i := range f.streams {
		note(d.driver.DestroyStream(d.ctx, f.streams[i]))
		note(d.driver.DestroyEvent(d.ctx, f.ends[i]))
	}
	*f = forks{}
	return first
}

// sides returns the streams for the tracks of a plan: those of operations outside captures, or ones that are in no
// capture or in c. They were made when the plan was loaded, unless several captures are in progress at once. d.mu is
// held.
func (d *Device) sides(c *capture, tracks int) (*forks, error) {
	n := min(tracks-1, maxSides)
	if n <= 0 {
		return nil, nil
	}
	f := &d.side
	if c != nil {
		var err error
		if f, err = d.graphedFor(c); err != nil {
			return nil, d.wrap("finding a stream for a track", err)
		}
	}
	if err := f.grow(d, n); err != nil {
		return nil, d.wrap("making a stream for a track", err)
	}
	return f, nil
}

// graphedFor returns forks that operations captured into c may use. The driver is asked each time, as streams join a
// capture when work reaches them and leave it at its end, which no operation sees.
func (d *Device) graphedFor(c *capture) (*forks, error) {
	for _, f := range d.graphed {
		if usable, err := d.usable(f, c); err != nil || usable {
			return f, err
		}
	}
	f := &forks{}
	d.graphed = append(d.graphed, f)
	return f, nil
}

// usable reports whether no stream of f is in another capture than c.
func (d *Device) usable(f *forks, c *capture) (bool, error) {
	for _, s := range f.streams {
		in, err := d.driver.CaptureInfo(d.ctx, s)
		if err != nil || in.Status != cuda.CaptureNone && in.ID != c.id {
			return false, err
		}
	}
	return true, nil
}

// rejoin makes s wait for the streams of f, which a failure of the driver may have left with work of their own.
func (f *forks) rejoin(d *Device, s cuda.Stream) error {
	for i, side := range f.streams {
		if err := d.driver.Record(d.ctx, f.ends[i], side); err != nil {
			return err
		}
		if err := d.driver.WaitEvent(d.ctx, s, f.ends[i]); err != nil {
			return err
		}
	}
	return nil
}
