package cudatest

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
)

// op is one thing in a stream or a graph. It runs on the stream's goroutine;
// done is closed when the driver closes.
type op func(done <-chan struct{})

// stream runs ops in order.
type stream struct {
	id       uint64 // no other stream ever has it
	priority int
	ctx      cuda.Context // 0: a default stream
	mu       sync.Mutex
	pending  []op
	wake     chan struct{} // 1 buffered: there is something pending
	put      uint64        // ops given, and ended; under mu
	ended    uint64
	idle     *sync.Cond
	stop     chan struct{}
	capture  *graph // ops are recorded instead of run; under the driver's lock
	last     []int  // the nodes of capture that the next one follows
}

// get finds a stream; default streams are made at their first use: stream 0, also
// called 1, and one for every thread, all called 2.
func (d *Driver) get(s cuda.Stream) *stream {
	switch s {
	case cuda.LegacyStream:
		s = 0
	case cuda.PerThreadStream:
		s = threadStream | cuda.Stream(syscall.Gettid())
	}
	st := d.streams[s]
	if st == nil && permanent(s) {
		st = d.start()
		d.streams[s] = st
	}
	return st
}

// threadStream marks the key of a thread's own stream.
const threadStream cuda.Stream = 1 << 63

func permanent(s cuda.Stream) bool { return s == 0 || s&threadStream != 0 }

func (d *Driver) start() *stream {
	st := &stream{id: d.id(), wake: make(chan struct{}, 1), stop: make(chan struct{})}
	st.idle = sync.NewCond(&st.mu)
	d.work.Add(1)
	go func() {
		defer d.work.Done()
		st.run(d.done)
	}()
	return st
}

func (st *stream) run(done <-chan struct{}) {
	for {
		st.mu.Lock()
		var next op
		if len(st.pending) > 0 {
			next, st.pending = st.pending[0], st.pending[1:]
		}
		st.mu.Unlock()
		if next != nil {
			next(done)
			st.mu.Lock()
			st.ended++
			st.idle.Broadcast()
			st.mu.Unlock()
			continue
		}
		select {
		case <-st.wake:
		case <-st.stop:
			return
		case <-done:
			st.mu.Lock()
			st.ended = st.put // lets those that wait return
			st.idle.Broadcast()
			st.mu.Unlock()
			return
		}
	}
}

func (st *stream) add(o op) {
	st.mu.Lock()
	st.pending = append(st.pending, o)
	st.put++
	st.mu.Unlock()
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// drain waits for everything given so far.
func (st *stream) drain(d *Driver) {
	st.mu.Lock()
	defer st.mu.Unlock()
	want := st.put
	for st.ended < want {
		select {
		case <-d.done:
			return
		default:
		}
		st.idle.Wait()
	}
}

// enqueue puts an op into a stream or the graph it is captured into. The
// driver's lock is held.
func (d *Driver) enqueue(s cuda.Stream, o op, call string) error {
	st := d.get(s)
	if st == nil {
		return failed(cuda.InvalidHandle, "%s", call)
	}
	if st.capture != nil {
		if st.capture.broken {
			return failed(cuda.CaptureInvalid, "%s", call)
		}
		st.capture.add(st, o, call)
	} else {
		st.add(o)
	}
	return nil
}

// NewStream starts a stream's goroutine.
func (d *Driver) NewStream(ctx cuda.Context, priority int) (cuda.Stream, error) {
	if err := d.in(ctx, "NewStream", "cuStreamCreateWithPriority"); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	// As CUDA's, a new stream has the handle of the one that was destroyed last.
	s := cuda.Stream(d.id())
	if last := len(d.handles) - 1; last >= 0 {
		s, d.handles = d.handles[last], d.handles[:last]
	}
	st := d.start()
	st.priority, st.ctx = priority, ctx
	d.streams[s] = st
	return s, nil
}

// StreamPriority returns it as NewStream got it.
func (d *Driver) StreamPriority(ctx cuda.Context, s cuda.Stream) (int, error) {
	if err := d.in(ctx, "StreamPriority", "cuStreamGetPriority"); err != nil {
		return 0, err
	}
	defer d.mu.Unlock()
	st := d.get(s)
	if st == nil {
		return 0, failed(cuda.InvalidHandle, "cuStreamGetPriority")
	}
	return st.priority, nil
}

// DestroyStream ends it once it has run what it was given.
func (d *Driver) DestroyStream(ctx cuda.Context, s cuda.Stream) error {
	if err := d.in(ctx, "DestroyStream", "cuStreamDestroy"); err != nil {
		return err
	}
	defer d.mu.Unlock()
	st := d.streams[s]
	if st == nil || s == 0 {
		return failed(cuda.InvalidHandle, "cuStreamDestroy")
	}
	delete(d.streams, s)
	d.handles = append(d.handles, s)
	d.bury()
	d.dying = append(d.dying, st)
	st.add(func(<-chan struct{}) { close(st.stop) })
	return nil
}

// bury forgets destroyed streams that have run what they were given. The lock is
// held.
func (d *Driver) bury() {
	d.dying = slices.DeleteFunc(d.dying, func(st *stream) bool {
		st.mu.Lock()
		defer st.mu.Unlock()
		return st.ended == st.put
	})
}

// SynchronizeStream waits; a stream under capture refuses, as CUDA's.
func (d *Driver) SynchronizeStream(ctx cuda.Context, s cuda.Stream) error {
	if err := d.in(ctx, "SynchronizeStream", "cuStreamSynchronize"); err != nil {
		return err
	}
	st := d.get(s)
	capturing := st != nil && st.capture != nil
	d.mu.Unlock()
	if st == nil {
		return failed(cuda.InvalidHandle, "cuStreamSynchronize")
	}
	if capturing {
		return failed(cuda.CaptureUnsupported, "cuStreamSynchronize")
	}
	st.drain(d)
	return nil
}

// StreamDone looks without waiting.
func (d *Driver) StreamDone(ctx cuda.Context, s cuda.Stream) (bool, error) {
	if err := d.in(ctx, "StreamDone", "cuStreamQuery"); err != nil {
		return false, err
	}
	st := d.get(s)
	d.mu.Unlock()
	if st == nil {
		return false, failed(cuda.InvalidHandle, "cuStreamQuery")
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.ended == st.put, nil
}

// Copy copies in stream order.
func (d *Driver) Copy(ctx cuda.Context, to, from cuda.Ptr, bytes int64, s cuda.Stream) error {
	if err := d.in(ctx, "Copy", copyCall, bytes, uint64(from), uint64(to)); err != nil {
		return err
	}
	defer d.mu.Unlock()
	return d.copy(to, from, bytes, s)
}

const copyCall = "cuMemcpyAsync of %d bytes from %#x to %#x"

func (d *Driver) copy(to, from cuda.Ptr, bytes int64, s cuda.Stream) error {
	if bytes == 0 {
		return nil
	}
	target, source := d.slice(to, bytes), d.slice(from, bytes)
	if target == nil || source == nil {
		return failed(cuda.InvalidValue, copyCall, bytes, uint64(from), uint64(to))
	}
	return d.enqueue(s, func(<-chan struct{}) { copy(target, source) }, "cuMemcpyAsync")
}

// Set fills in stream order.
func (d *Driver) Set(ctx cuda.Context, to cuda.Ptr, value byte, bytes int64, s cuda.Stream) error {
	const call = "cuMemsetD8Async of %d bytes at %#x"
	if err := d.in(ctx, "Set", call, bytes, uint64(to)); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if bytes == 0 {
		return nil
	}
	target := d.slice(to, bytes)
	if target == nil {
		return failed(cuda.InvalidValue, call, bytes, uint64(to))
	}
	return d.enqueue(s, func(<-chan struct{}) { fill(target, value) }, "cuMemsetD8Async")
}

// word returns a 64-bit word of memory, for atomic access.
func (d *Driver) word(p cuda.Ptr) *uint64 {
	b := d.slice(p, 8)
	if b == nil || p%8 != 0 {
		return nil
	}
	return (*uint64)(unsafe.Pointer(&b[0]))
}

// WriteValue stores in stream order.
func (d *Driver) WriteValue(ctx cuda.Context, s cuda.Stream, word cuda.Ptr, value uint64) error {
	if err := d.in(ctx, "WriteValue", "cuStreamWriteValue64 at %#x", uint64(word)); err != nil {
		return err
	}
	defer d.mu.Unlock()
	w := d.word(word)
	if w == nil {
		return failed(cuda.InvalidValue, "cuStreamWriteValue64 at %#x", uint64(word))
	}
	return d.enqueue(s, func(<-chan struct{}) { atomic.StoreUint64(w, value) }, "cuStreamWriteValue64")
}

// WaitValue holds the stream.
func (d *Driver) WaitValue(ctx cuda.Context, s cuda.Stream, word cuda.Ptr, value uint64) error {
	if err := d.in(ctx, "WaitValue", "cuStreamWaitValue64 at %#x", uint64(word)); err != nil {
		return err
	}
	defer d.mu.Unlock()
	w := d.word(word)
	if w == nil {
		return failed(cuda.InvalidValue, "cuStreamWaitValue64 at %#x", uint64(word))
	}
	return d.enqueue(s, func(done <-chan struct{}) {
		for since := time.Now(); int64(atomic.LoadUint64(w)-value) < 0; Backoff(time.Since(since)) {
			select {
			case <-done:
				return
			default:
			}
		}
	}, "cuStreamWaitValue64")
}

// Backoff is called in every round of a wait for a word of memory, with how long it has lasted: a kernel goes round as
// fast as it can, which here would take the processors from what it waits for.
func Backoff(waited time.Duration) {
	if waited < time.Millisecond {
		runtime.Gosched()
		return
	}
	time.Sleep(min(waited/8, 500*time.Microsecond))
}
