package cudatest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
)

// event is recorded in a stream, or in a capture, which it cannot leave.
type event struct {
	mu   sync.Mutex
	done chan struct{} // of the last record; nil: never recorded, or in a capture
	at   time.Time

	graph   *graph // that it was last recorded in,
	capture uint64 // the number of that capture,
	last    []int  // and what stood before it there
}

// NewEvent makes an event.
func (d *Driver) NewEvent(ctx cuda.Context, _ bool) (cuda.Event, error) {
	if err := d.in(ctx, "NewEvent", "cuEventCreate"); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	e := cuda.Event(d.id())
	d.events[e] = &event{}
	return e, nil
}

// DestroyEvent forgets an event.
func (d *Driver) DestroyEvent(ctx cuda.Context, e cuda.Event) error {
	if err := d.in(ctx, "DestroyEvent", "cuEventDestroy"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if d.events[e] == nil {
		return failed(cuda.InvalidHandle, "cuEventDestroy")
	}
	delete(d.events, e)
	return nil
}

// Record marks a place in a stream or in the graph it is captured into.
func (d *Driver) Record(ctx cuda.Context, e cuda.Event, s cuda.Stream) error {
	if err := d.in(ctx, "Record", "cuEventRecord"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	return d.record(e, s)
}

func (d *Driver) record(e cuda.Event, s cuda.Stream) error {
	ev, st := d.events[e], d.get(s)
	if ev == nil || st == nil {
		return failed(cuda.InvalidHandle, "cuEventRecord")
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	ev.graph = st.capture
	if st.capture != nil {
		if st.capture.broken {
			return failed(cuda.CaptureInvalid, "cuEventRecord")
		}
		ev.done, ev.capture, ev.last = nil, st.capture.capture, append([]int(nil), st.last...)
		return nil
	}
	done := make(chan struct{})
	ev.done = done
	st.add(func(<-chan struct{}) { ev.reach(done) })
	return nil
}

func (ev *event) reach(done chan struct{}) {
	ev.mu.Lock()
	ev.at = time.Now()
	ev.mu.Unlock()
	close(done)
}

// RecordContext records what is in all streams, destroyed ones included. A
// capture in progress is broken by it, as by CUDA.
func (d *Driver) RecordContext(ctx cuda.Context, e cuda.Event) error {
	if err := d.in(ctx, "RecordContext", "cuCtxRecordEvent"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	ev := d.events[e]
	if ev == nil {
		return failed(cuda.InvalidHandle, "cuCtxRecordEvent")
	}
	capturing := false
	for _, st := range d.streams {
		if st.capture != nil {
			st.capture.broken, capturing = true, true
		}
	}
	if capturing {
		return failed(cuda.CaptureUnsupported, "cuCtxRecordEvent")
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	ev.graph = nil
	done := make(chan struct{})
	ev.done = done
	var left atomic.Int64
	left.Store(int64(len(d.streams) + len(d.dying)))
	if left.Load() == 0 {
		ev.at = time.Now()
		close(done)
	}
	arrive := func(<-chan struct{}) {
		if left.Add(-1) == 0 {
			ev.reach(done)
		}
	}
	for _, st := range d.streams {
		st.add(arrive)
	}
	for _, st := range append([]*stream(nil), d.dying...) {
		d.work.Go(func() {
			st.drain(d)
			arrive(nil)
		})
	}
	return nil
}

// EventDone looks without waiting; an event never recorded is done.
func (d *Driver) EventDone(ctx cuda.Context, e cuda.Event) (bool, error) {
	if err := d.in(ctx, "EventDone", "cuEventQuery"); err != nil {
		return false, err
	}
	defer d.mu.Unlock()
	ev := d.events[e]
	if ev == nil {
		return false, failed(cuda.InvalidHandle, "cuEventQuery")
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if ev.graph != nil {
		return false, failed(cuda.CapturedEvent, "cuEventQuery")
	}
	if ev.done == nil {
		return true, nil
	}
	select {
	case <-ev.done:
		return true, nil
	default:
		return false, nil
	}
}

// Elapsed returns wall time.
func (d *Driver) Elapsed(ctx cuda.Context, from, to cuda.Event) (float64, error) {
	if err := d.in(ctx, "Elapsed", "cuEventElapsedTime"); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	a, b := d.events[from], d.events[to]
	if a == nil || b == nil {
		return 0, failed(cuda.InvalidHandle, "cuEventElapsedTime")
	}
	times := [2]time.Time{}
	for i, ev := range []*event{a, b} {
		ev.mu.Lock()
		times[i] = ev.at
		ev.mu.Unlock()
	}
	if times[0].IsZero() || times[1].IsZero() {
		return 0, failed(cuda.InvalidHandle, "cuEventElapsedTime")
	}
	return float64(times[1].Sub(times[0]).Nanoseconds()) / 1e3, nil
}

// WaitEvent holds a stream until an event's last record so far. An event of a
// capture takes the stream into that capture.
func (d *Driver) WaitEvent(ctx cuda.Context, s cuda.Stream, e cuda.Event) error {
	if err := d.in(ctx, "WaitEvent", "cuStreamWaitEvent"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	return d.wait(s, e)
}

func (d *Driver) wait(s cuda.Stream, e cuda.Event) error {
	ev, st := d.events[e], d.get(s)
	if ev == nil || st == nil {
		return failed(cuda.InvalidHandle, "cuStreamWaitEvent")
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	switch {
	case ev.graph != nil && (ev.graph.ended || ev.graph.capture != ev.capture):
		return failed(cuda.CapturedEvent, "cuStreamWaitEvent")
	case ev.graph != nil:
		if st.capture != nil && st.capture != ev.graph {
			st.capture.broken, ev.graph.broken = true, true
			return failed(cuda.CaptureMerge, "cuStreamWaitEvent")
		}
		st.last = append(append([]int(nil), st.last...), ev.last...)
		st.capture = ev.graph
		return nil
	case ev.done == nil:
		return nil
	case st.capture != nil:
		return failed(cuda.CaptureIsolation, "cuStreamWaitEvent")
	}
	recorded := ev.done
	st.add(func(done <-chan struct{}) {
		select {
		case <-recorded:
		case <-done:
		}
	})
	return nil
}
