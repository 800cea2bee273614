package host

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/allocator"
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
	rank   int
	memory *allocator.Allocator
}

// AllocatorOptions describe an allocator. The zero value is a plain one.
type AllocatorOptions struct {
	Symmetric bool
	// SegmentBytes is the least size of a segment, rounded up to 2 MiB. 0: 32 MiB.
	SegmentBytes int64
}

// AllocatorStats are bytes and numbers of an allocator: InUse of Blocks that are allocated, Cached in free ones, all in
// Segments of the GPU's memory.
type AllocatorStats struct {
	InUse    int64 // bytes of allocated blocks
	Cached   int64 // bytes of free blocks
	Peak     int64 // most bytes that were in use at one time
	Blocks   int64 // allocated
	Segments int64 // of the GPU's memory; they hold InUse and Cached
}

// NewAllocator makes an allocator without memory. It is local; but all ranks make their symmetric ones in the same
// order, with the same options.
func (c *Communicator) NewAllocator(o AllocatorOptions) (*Allocator, error) {
	if o.SegmentBytes < 0 || o.SegmentBytes > allocator.MaxBytes {
		return nil, c.observer.Invalid("new_allocator", "segments of %d bytes; want 0 to %d", o.SegmentBytes,
			int64(allocator.MaxBytes))
	}
	if c.device == nil {
		return nil, c.observer.Reject(0, "new_allocator", plugin.Errorf(plugin.Unsupported,
			"new_allocator on rank %d: the communicator's memory is the host's; allocators serve memory of CUDA devices", c.Rank()))
	}
	release, err := c.enter("new_allocator")
	if err != nil {
		return nil, err
	}
	defer release()
	memory, err := c.allocators.New(c.home(), c.job.GPU.Driver, c.job.GPU.Info.Ordinal, allocator.Options(o))
	if err != nil {
		return nil, c.observer.WrapError("new_allocator", err)
	}
	if memory == nil {
		return nil, c.observer.ClosedError("new_allocator")
	}
	return &Allocator{c.Rank(), memory}, nil
}

// home returns the parts of the communicator that allocators need.
func (c *Communicator) home() allocator.Home {
	return allocator.Home{
		Label: c.Label(), Rank: c.Rank(),
		Turn: func(what string) (func(), error) { return c.turn.Leave, c.turn.Wait(what) },
		Failed: func(what string) error {
			if c.lookForFailure() {
				return c.observer.Failed(what)
			}
			return nil
		},
		Deadline:  func() (context.Context, context.CancelFunc) { return c.observer.Deadline(c.job.Context) },
		Group:     c.group,
		Symmetric: &c.endpoints.Symmetric,
		Buffers:   c.endpoints.Buffers,
	}
}

// Alloc returns memory of the given number of bytes, one or more, aligned to 512 bytes and not zeroed, for use in a
// stream. Other streams may use it once they wait for that stream; RecordStream tells the allocator of them. Where no
// cached memory fits, the allocator grows; without memory of the device for that it gives its cached segments back and
// tries once more.
func (a *Allocator) Alloc(bytes int64, stream Stream) (unsafe.Pointer, error) {
	p, err := a.memory.Alloc(bytes, streamOf(stream))
	return *(*unsafe.Pointer)(unsafe.Pointer(&p)), a.wrap("alloc", err)
}

// Free gives memory of Alloc back, after what is in the stream by now and in the streams of RecordStream. It waits for
// nothing. An allocation is freed once, at the address that Alloc returned.
func (a *Allocator) Free(p unsafe.Pointer, stream Stream) error {
	return a.wrap("free", a.memory.Free(cuda.Ptr(uintptr(p)), streamOf(stream)))
}

// RecordStream makes Free of an allocation wait for what is in another stream by then, too. The stream must exist until
// then; it cannot be the calling thread's own (CU_STREAM_PER_THREAD), as another thread may free.
func (a *Allocator) RecordStream(p unsafe.Pointer, stream Stream) error {
	return a.wrap("record_stream", a.memory.RecordStream(cuda.Ptr(uintptr(p)), streamOf(stream)))
}

// Reserve grows the allocator unless it has that many bytes in one piece that nothing uses any more: the next Alloc of
// as many then does not grow. In a symmetric allocator it is collective, and before a capture that allocates from it,
// needed.
func (a *Allocator) Reserve(bytes int64) error { return a.wrap("reserve", a.memory.Reserve(bytes)) }

// Trim gives the segments that nothing uses any more back to the device. In a symmetric allocator it is collective.
func (a *Allocator) Trim() error { return a.wrap("trim", a.memory.Trim()) }

// Stats returns what the allocator has.
func (a *Allocator) Stats() AllocatorStats { return AllocatorStats(a.memory.Stats()) }

// Device returns the ordinal of the allocator's device.
func (a *Allocator) Device() int { return a.memory.Device() }

// Destroy gives all memory back. Blocks that are allocated (InvalidArgument), and graphs that were captured with the
// memory and still exist (Timeout), make it fail, and the allocator stays usable; it waits up to two seconds for work
// on memory that was freed. With Device, memory could not be given back, and the allocator has ended nevertheless. It
// is local, but ranks that still use a symmetric allocator's communicator destroy it between the same two collectives.
func (a *Allocator) Destroy() error { return a.wrap("allocator destroy", a.memory.Destroy()) }

// wrap names the call in an error.
func (a *Allocator) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	rank := a.rank
	var e *plugin.Error
	if errors.As(err, &e) && e.Rank >= 0 {
		rank = e.Rank
	}
	return &plugin.Error{Code: plugin.CodeOf(err), Rank: rank, Cause: err,
		Message: fmt.Sprintf("%s on rank %d: %v", what, a.rank, err)}
}
