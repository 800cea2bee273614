package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/lockorder"
	"github.com/shunt-ccl/shunt/host/internal/pool"
	"github.com/shunt-ccl/shunt/plugin"
)

// Allocator is memory of a communicator's GPU that peers map: a cache of segments, multiples of 2 MiB, from which
// blocks are given out in the order of streams. Its methods may be called from any goroutine. None of them waits for a
// GPU, but Destroy, for at most two seconds: a thread that frees cannot keep kernels waiting that wait for it.
//
// A block that was freed serves the stream that it was freed in at once. Memory that is allocated or freed in a stream
// under capture serves that capture alone until its graph, and every executable made of it, is gone.
//
// A symmetric allocator's memory is registered as by RegisterSymmetric, so large messages go through the GPUs' copy
// engines: every rank allocates, frees, records streams, reserves and trims alike, in one order, and then its blocks
// lie at equal offsets. What makes it grow or shrink (Reserve, Trim, and an Alloc that finds no memory) is collective.
// In other allocators every rank goes its own way.
//
// The memory outlives the communicator: it stays until Destroy, but the allocator does not grow once the communicator
// is closed.
type Allocator struct {
	comm      *Communicator
	gpu       pool.GPU
	pool      *pool.Pool
	symmetric bool
	segment   int64  // least bytes of one
	label     string // in tags

	growth lockorder.Mutex // guards what follows
	steps  int             // collective ones so far, which all ranks count alike
	ended  bool            // the communicator is closed
	gone   bool            // Destroy was called
}

// AllocatorOptions describe an allocator. The zero value is a plain one.
type AllocatorOptions struct {
	Symmetric bool
	// SegmentBytes is the least size of a segment, rounded up to 2 MiB. 0: 32 MiB.
	SegmentBytes int64
}

// AllocatorStats are bytes and numbers of an allocator: InUse of Blocks that are allocated, Cached in free ones, all in
// Segments of the GPU's memory.
type AllocatorStats = pool.Stats

const (
	defaultSegment = 32 << 20
	maxSegment     = 1 << 46
)

// destroyWait bounds how long Destroy waits for work on memory that was freed.
var destroyWait = 2 * time.Second

// allocators are those of a communicator that were not destroyed.
type allocators struct {
	mu     sync.Mutex
	all    map[*Allocator]bool
	count  int
	closed bool
}

// NewAllocator makes an allocator without memory. It is local; but all ranks make their allocators in the same order,
// those that are symmetric with the same options.
func (c *Communicator) NewAllocator(o AllocatorOptions) (*Allocator, error) {
	if o.SegmentBytes < 0 || o.SegmentBytes > maxSegment {
		return nil, c.rejectNamed("new_allocator", plugin.Errorf(plugin.InvalidArgument,
			"new_allocator on rank %d: segments of %d bytes; want 0 to %d", c.rank, o.SegmentBytes, int64(maxSegment)))
	}
	if c.device == nil {
		return nil, c.rejectNamed("new_allocator", plugin.Errorf(plugin.Unsupported,
			"new_allocator on rank %d: the communicator's memory is the host's; allocators serve memory of CUDA devices", c.rank))
	}
	release, err := c.enter("new_allocator")
	if err != nil {
		return nil, err
	}
	defer release()
	g := c.job.GPU
	context, err := g.Driver.Retain(g.Info.Ordinal) // the memory may outlive the communicator
	if err != nil {
		return nil, c.observer.WrapError("new_allocator", err)
	}
	a := &Allocator{comm: c, gpu: pool.GPU{Driver: g.Driver, Context: context, Ordinal: g.Info.Ordinal},
		symmetric: o.Symmetric, segment: segmentBytes(o.SegmentBytes), growth: lockorder.Mutex{Level: lockorder.Growth}}
	if o.SegmentBytes == 0 {
		a.segment = defaultSegment
	}
	a.pool = pool.New(a.gpu, o.Symmetric, func(g cuda.Graph) (pool.Graph, error) {
		return executor.UseGraph(a.gpu.Driver, g)
	})
	c.allocators.mu.Lock()
	defer c.allocators.mu.Unlock()
	if c.allocators.closed {
		return nil, errors.Join(c.observer.ClosedError("new_allocator"), g.Driver.Release(g.Info.Ordinal))
	}
	c.allocators.count++
	a.label = fmt.Sprintf("%s, allocator %d", c.label, c.allocators.count)
	if c.allocators.all == nil {
		c.allocators.all = map[*Allocator]bool{}
	}
	c.allocators.all[a] = true
	return a, nil
}

func segmentBytes(bytes int64) int64 {
	return (bytes + pool.Granularity - 1) / pool.Granularity * pool.Granularity
}

// Alloc returns memory of so many bytes, one or more, aligned to 512 bytes and not zeroed, for use in a stream. Other
// streams may use it after what they wait for, and are told of by RecordStream. Where no cached memory fits, the
// allocator grows; without memory of the device for that it gives its cached segments back and tries once more.
func (a *Allocator) Alloc(bytes int64, stream Stream) (unsafe.Pointer, error) {
	n := pool.Rounded(bytes)
	if n == 0 || n > maxSegment {
		return nil, a.invalid("alloc", "%d bytes; want 1 to %d", bytes, int64(maxSegment))
	}
	s := streamOf(stream)
	p, err := a.pool.Alloc(n, s)
	if err == nil && p == 0 {
		p, err = a.grown(n, bytes, s)
	}
	if err != nil {
		return nil, a.wrap("alloc", err)
	}
	return *(*unsafe.Pointer)(unsafe.Pointer(&p)), nil
}

// grown allocates from memory that is added for it.
func (a *Allocator) grown(n, bytes int64, s cuda.Stream) (cuda.Ptr, error) {
	a.growth.Lock()
	defer a.growth.Unlock()
	for {
		if err := a.usable(); err != nil {
			return 0, err
		}
		// Another thread may have grown it meanwhile, or take what is added now.
		if p, err := a.pool.Alloc(n, s); p != 0 || err != nil {
			return p, err
		}
		state, err := a.gpu.Driver.CaptureInfo(a.gpu.Context, s)
		if err != nil {
			return 0, err
		}
		if !a.symmetric {
			err = a.grow(n, bytes, state.Status != cuda.CaptureNone)
		} else if state.Status != cuda.CaptureNone {
			err = plugin.Errorf(plugin.Unsupported, "%d bytes need more symmetric memory, which all ranks make together, and the stream is being captured; call reserve before the capture", bytes)
		} else {
			err = a.growTogether(n, bytes)
		}
		if err != nil {
			return 0, err
		}
	}
}

// usable rejects what needs the communicator. a.growth is held.
func (a *Allocator) usable() error {
	if a.gone {
		return plugin.Errorf(plugin.Closed, "the allocator was destroyed")
	}
	if a.ended {
		return plugin.Errorf(plugin.Closed, "communicator %s is closed", a.comm.label)
	}
	return nil
}

// grow adds a segment for a block of n bytes. a.growth is held.
func (a *Allocator) grow(n, bytes int64, capturing bool) error {
	m, err := a.make(max(segmentBytes(n), a.segment))
	if isOutOfMemory(err) {
		if err := a.shrink(true); err != nil {
			return err
		}
		if m, err = a.make(segmentBytes(n)); isOutOfMemory(err) {
			return a.exhausted(bytes, segmentBytes(n), err)
		}
	}
	if err != nil {
		return err
	}
	var export *buffers.Export
	if !capturing { // no registration then: peers map the memory when a call has used it
		export = a.comm.endpoints.Buffers.Announce(m.Address, m.Bytes)
	}
	a.pool.Add(m, export)
	return nil
}

func isOutOfMemory(err error) bool { return err != nil && plugin.CodeOf(err) == plugin.OutOfMemory }

// make makes a segment. It may take the driver a while, and waits for no GPU.
func (a *Allocator) make(bytes int64) (cuda.Mapping, error) {
	lockorder.MustNotHold("cuMemCreate", lockorder.Turn, lockorder.Memory)
	return a.gpu.Driver.CreateMemory(a.gpu.Context, a.gpu.Ordinal, bytes)
}

func (a *Allocator) unmap(m cuda.Mapping) error {
	lockorder.MustNotHold("cuMemUnmap", lockorder.Turn, lockorder.Memory)
	return a.gpu.Driver.Unmap(a.gpu.Context, m)
}

// exhausted is the error of a device without memory.
func (a *Allocator) exhausted(bytes, segment int64, err error) error {
	s := a.pool.Stats()
	return plugin.Errorf(plugin.OutOfMemory,
		"device %d has no memory for %d bytes (a segment of %d); this allocator has %d bytes in use in %d blocks and %d cached in %d segments: %w",
		a.gpu.Ordinal, bytes, segment, s.InUse, s.Blocks, s.Cached, s.Segments, err)
}

// shrink gives the segments that nothing uses back to the device. a.growth is held.
func (a *Allocator) shrink(look bool) error {
	var errs []error
	for _, s := range a.pool.Idle(look) {
		errs = append(errs, a.deregister(s), a.unmap(s.Mapping))
	}
	return errors.Join(errs...)
}

// deregister makes peers unmap a segment.
func (a *Allocator) deregister(s *pool.Segment) error {
	if a.ended {
		return nil // the communicator has taken its registrations along
	}
	if !a.symmetric {
		export, _ := s.Export.(*buffers.Export)
		return a.comm.endpoints.Buffers.Withdraw(export)
	}
	release, err := a.comm.enter("deregister")
	if plugin.CodeOf(err) == plugin.Closed {
		return nil // likewise
	}
	if err != nil { // it has failed, and nobody runs anything any more
		if err := a.comm.waitTurn("deregister"); err != nil {
			return nil
		}
		release = a.comm.release
	}
	defer release()
	_, err = a.comm.symmetric.Deregister(a.comm.endpoints.Buffers, s.Address)
	return err
}

// Free gives memory of Alloc back, after what is in the stream by now and in the streams of RecordStream. It waits for
// nothing. An allocation is freed once, at the address that Alloc returned.
func (a *Allocator) Free(p unsafe.Pointer, stream Stream) error {
	return a.wrap("free", a.pool.Free(cuda.Ptr(uintptr(p)), streamOf(stream)))
}

// RecordStream makes Free of an allocation wait for what is in another stream by then, too. The stream must exist until
// then.
func (a *Allocator) RecordStream(p unsafe.Pointer, stream Stream) error {
	return a.wrap("record_stream", a.pool.RecordStream(cuda.Ptr(uintptr(p)), streamOf(stream)))
}

// Reserve grows the allocator unless it has so many bytes in one piece that nothing uses any more: the next Alloc of as
// many then does not grow. In a symmetric allocator it is collective, and before a capture that allocates from it,
// needed.
func (a *Allocator) Reserve(bytes int64) error {
	n := pool.Rounded(bytes)
	if n == 0 || n > maxSegment {
		return a.invalid("reserve", "%d bytes; want 1 to %d", bytes, int64(maxSegment))
	}
	a.growth.Lock()
	defer a.growth.Unlock()
	err := a.usable()
	if err == nil && a.symmetric {
		err = a.growTogether(n, bytes)
	} else if err == nil && !a.pool.Fits(n) {
		err = a.grow(n, bytes, false)
	}
	return a.wrap("reserve", err)
}

// Trim gives the segments that nothing uses any more back to the device. In a symmetric allocator it is collective.
func (a *Allocator) Trim() error {
	a.growth.Lock()
	defer a.growth.Unlock()
	err := a.usable()
	if a.ended && !a.gone {
		err = nil // local from then on
	}
	if err == nil && a.symmetric && !a.ended {
		_, err = a.meet("trim", 0)
	}
	if err == nil {
		err = a.shrink(!a.symmetric || a.ended)
	}
	return a.wrap("trim", err)
}

// Stats returns what the allocator has.
func (a *Allocator) Stats() AllocatorStats { return a.pool.Stats() }

// Device returns the ordinal of the allocator's device.
func (a *Allocator) Device() int { return a.gpu.Ordinal }

// Destroy gives all memory back. Blocks that are allocated, and graphs that were captured with the memory and still
// exist, make it fail, and the allocator goes on; it waits up to two seconds for work on memory that was freed. It is
// local, but ranks that go on to use a symmetric allocator's communicator destroy it between the same two collectives.
func (a *Allocator) Destroy() error {
	a.growth.Lock()
	defer a.growth.Unlock()
	if a.gone {
		return a.wrap("allocator destroy", plugin.Errorf(plugin.Closed, "the allocator was destroyed"))
	}
	if s := a.pool.Stats(); s.Blocks > 0 {
		return a.invalid("allocator destroy", "%d blocks of %d bytes are allocated; free them first", s.Blocks, s.InUse)
	}
	errs := []error{a.shrink(true)}
	for deadline := time.Now().Add(destroyWait); a.pool.Stats().Segments > 0; errs = append(errs, a.shrink(true)) {
		if time.Now().After(deadline) {
			return a.wrap("allocator destroy", plugin.Errorf(plugin.Timeout,
				"%d bytes are still used by work that has not ended, or by graphs that were captured with them; destroy those graphs first",
				a.pool.Stats().Cached))
		}
		time.Sleep(time.Millisecond)
	}
	a.gone = true
	errs = append(errs, a.pool.Close(), a.gpu.Driver.Release(a.gpu.Ordinal))
	a.comm.allocators.mu.Lock()
	delete(a.comm.allocators.all, a)
	a.comm.allocators.mu.Unlock()
	return a.wrap("allocator destroy", errors.Join(errs...))
}

// end makes allocators go on without their communicator, which is about to be closed.
func (l *allocators) end() {
	l.mu.Lock()
	l.closed = true
	all := slices.Collect(maps.Keys(l.all))
	l.mu.Unlock()
	for _, a := range all {
		a.growth.Lock()
		a.ended = true
		a.growth.Unlock()
	}
}

func (a *Allocator) invalid(what, format string, args ...any) error {
	return a.wrap(what, plugin.Errorf(plugin.InvalidArgument, format, args...))
}

// wrap names the call in an error.
func (a *Allocator) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	rank := a.comm.rank
	var e *plugin.Error
	if errors.As(err, &e) && e.Rank >= 0 {
		rank = e.Rank
	}
	return &plugin.Error{Code: plugin.CodeOf(err), Rank: rank, Cause: err,
		Message: fmt.Sprintf("%s on rank %d: %v", what, a.comm.rank, err)}
}
