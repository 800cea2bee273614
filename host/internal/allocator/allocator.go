package allocator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/lockorder"
	"github.com/shunt-ccl/shunt/host/internal/pool"
	"github.com/shunt-ccl/shunt/plugin"
)

// Home has what an allocator needs of its communicator.
type Home struct {
	Label string // of the communicator
	Rank  int
	// Turn waits for the communicator's turn, unless the communicator is closed.
	Turn func(what string) (release func(), err error)
	// Failed returns the error of a communicator that has failed. The turn is held.
	Failed func(what string) error
	// Deadline bounds what the ranks exchange.
	Deadline  func() (context.Context, context.CancelFunc)
	Group     buffers.Group
	Symmetric *buffers.Symmetric
	Buffers   *buffers.Registry
}

// Options describe an allocator.
type Options struct {
	Symmetric    bool
	SegmentBytes int64 // least size of a segment, rounded up to 2 MiB; 0: 32 MiB
}

// MaxBytes is the greatest size of a block and of a segment.
const MaxBytes = 1 << 46

const defaultSegment = 32 << 20

// DestroyWait bounds how long Destroy waits for work on memory that was freed.
var DestroyWait = 2 * time.Second

// Allocator is a pool that grows and shrinks. Its methods may be called from any goroutine.
type Allocator struct {
	home      Home
	set       *Set
	gpu       pool.GPU
	pool      *pool.Pool
	symmetric bool
	segment   int64  // least bytes of one
	label     string // in tags, of a symmetric one

	growth lockorder.Mutex // guards what follows
	steps  int             // collective ones so far, which all ranks count alike
	ended  bool            // the communicator is closed
	gone   bool            // Destroy was called
}

// Set is the allocators of a communicator that were not destroyed.
type Set struct {
	mu        sync.Mutex
	all       map[*Allocator]bool
	symmetric int // made so far, the same on all ranks
	closed    bool
}

// New makes an allocator without memory on a device. It returns nil if the communicator has ended.
func (l *Set) New(home Home, driver cuda.Driver, ordinal int, o Options) (*Allocator, error) {
	context, err := driver.Retain(ordinal) // the memory may outlive the communicator
	if err != nil {
		return nil, err
	}
	a := &Allocator{home: home, set: l, gpu: pool.GPU{Driver: driver, Context: context, Ordinal: ordinal},
		symmetric: o.Symmetric, segment: segmentBytes(o.SegmentBytes), growth: lockorder.Mutex{Level: lockorder.Growth}}
	if o.SegmentBytes == 0 {
		a.segment = defaultSegment
	}
	a.pool = pool.New(a.gpu, o.Symmetric, func(g cuda.Graph) (pool.Graph, error) {
		return executor.UseGraph(driver, g)
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, driver.Release(ordinal)
	}
	if o.Symmetric {
		l.symmetric++
		a.label = fmt.Sprintf("%s, symmetric allocator %d", home.Label, l.symmetric)
	}
	if l.all == nil {
		l.all = map[*Allocator]bool{}
	}
	l.all[a] = true
	return a, nil
}

// End detaches the allocators, which can still be used, from their communicator, which is about to be closed.
func (l *Set) End() {
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

func segmentBytes(bytes int64) int64 {
	return (bytes + pool.Granularity - 1) / pool.Granularity * pool.Granularity
}

// Alloc returns the address of a block of so many bytes for use in a stream, and grows where none is free.
func (a *Allocator) Alloc(bytes int64, s cuda.Stream) (cuda.Ptr, error) {
	n, err := rounded(bytes)
	if err != nil {
		return 0, err
	}
	p, err := a.pool.Alloc(n, s)
	if a.lacks(n, p, err) {
		p, err = a.grown(n, bytes, s)
	}
	return p, err
}

// lacks reports whether more memory is needed for a block, after what the pool has returned. Where the ranks grow
// together, a rank that has failed goes along if the others do.
func (a *Allocator) lacks(n int64, p cuda.Ptr, err error) bool {
	return p == 0 && (err == nil || a.symmetric && !a.pool.Serves(n))
}

// rounded returns the bytes of the block that so many take.
func rounded(bytes int64) (int64, error) {
	n := pool.Rounded(bytes)
	if n == 0 || n > MaxBytes {
		return 0, plugin.Errorf(plugin.InvalidArgument, "%d bytes; want 1 to %d", bytes, int64(MaxBytes))
	}
	return n, nil
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
		p, err := a.pool.Alloc(n, s)
		if !a.lacks(n, p, err) {
			return p, err
		}
		var state cuda.Capture
		if err == nil {
			state, err = a.gpu.Driver.CaptureInfo(a.gpu.Context, s)
		}
		if a.symmetric {
			if err == nil && state.Status != cuda.CaptureNone {
				err = plugin.Errorf(plugin.Unsupported, "%d bytes need more symmetric memory, which all ranks make together, and the stream is being captured; call reserve before the capture", bytes)
			}
			err = a.growTogether(n, bytes, err)
		} else if err == nil {
			err = a.grow(n, bytes, state.Status != cuda.CaptureNone)
		}
		if err != nil {
			return 0, err
		}
	}
}

// usable rejects what needs the communicator. a.growth is held.
func (a *Allocator) usable() error {
	if a.gone {
		return errDestroyed()
	}
	if a.ended {
		return plugin.Errorf(plugin.Closed, "communicator %s is closed", a.home.Label)
	}
	return nil
}

func errDestroyed() error { return plugin.Errorf(plugin.Closed, "the allocator was destroyed") }

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
		export = a.home.Buffers.Announce(m.Address, m.Bytes)
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
		return a.home.Buffers.Withdraw(export)
	}
	release, err := a.home.Turn("deregister")
	if err != nil {
		return nil // likewise
	}
	defer release() // also where it has failed: nothing runs any more
	registered, _ := s.Export.(*buffers.Range)
	return a.home.Symmetric.End(a.home.Buffers, registered)
}

// Free gives memory of Alloc back, after what is in the stream by now and in the streams of RecordStream.
func (a *Allocator) Free(p cuda.Ptr, s cuda.Stream) error { return a.pool.Free(p, s) }

// RecordStream makes Free of an allocation wait for what is in another stream by then, too.
func (a *Allocator) RecordStream(p cuda.Ptr, s cuda.Stream) error { return a.pool.RecordStream(p, s) }

// Stats returns what the allocator has.
func (a *Allocator) Stats() pool.Stats { return a.pool.Stats() }

// Device returns the ordinal of the allocator's device.
func (a *Allocator) Device() int { return a.gpu.Ordinal }

// Reserve grows the allocator unless it has so many bytes in one piece that nothing uses any more. In a symmetric
// allocator it is collective.
func (a *Allocator) Reserve(bytes int64) error {
	n, err := rounded(bytes)
	if err != nil {
		return err
	}
	a.growth.Lock()
	defer a.growth.Unlock()
	if err := a.usable(); err != nil {
		return err
	}
	if a.symmetric {
		return a.growTogether(n, bytes, nil)
	}
	if a.pool.Fits(n) {
		return nil
	}
	return a.grow(n, bytes, false)
}

// Trim gives the segments that nothing uses any more back to the device. In a symmetric allocator it is collective,
// until the communicator is closed.
func (a *Allocator) Trim() error {
	a.growth.Lock()
	defer a.growth.Unlock()
	if a.gone {
		return errDestroyed()
	}
	together := a.symmetric && !a.ended
	if together {
		if _, err := a.meet("trim", 0, nil); err != nil {
			return err
		}
	}
	return a.shrink(!together)
}

// Destroy gives all memory back, or fails and changes nothing, while blocks are allocated or used: what one rank alone
// took out, or noted as over, would set the ranks of a symmetric allocator apart. Where the driver fails to take memory
// back, the allocator is gone, and the error's code is Device.
func (a *Allocator) Destroy() error {
	a.growth.Lock()
	defer a.growth.Unlock()
	if a.gone {
		return errDestroyed()
	}
	if s := a.pool.Stats(); s.Blocks > 0 {
		return plugin.Errorf(plugin.InvalidArgument, "%d blocks of %d bytes are allocated; free them first", s.Blocks, s.InUse)
	}
	var errs []error
	for deadline := time.Now().Add(DestroyWait); ; time.Sleep(time.Millisecond) {
		used := a.pool.Used()
		if used == 0 {
			errs = append(errs, a.shrink(true))
		}
		if a.pool.Stats().Segments == 0 {
			break
		}
		if time.Now().After(deadline) {
			return plugin.Errorf(plugin.Timeout,
				"%d bytes are still used by work that has not ended, or by graphs that were captured with them; destroy those graphs first",
				used)
		}
	}
	a.gone = true
	errs = append(errs, a.pool.Close(), a.gpu.Driver.Release(a.gpu.Ordinal))
	a.set.mu.Lock()
	delete(a.set.all, a)
	a.set.mu.Unlock()
	if err := errors.Join(errs...); err != nil {
		return plugin.Errorf(plugin.Device, "the allocator has ended, but not all of its memory was given back: %w", err)
	}
	return nil
}
