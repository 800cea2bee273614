package pool

import (
	"cmp"
	"slices"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/lockorder"
	"github.com/shunt-ccl/shunt/plugin"
)

// Align is the alignment of blocks, Granularity that of segments, in bytes.
const (
	Align       = 512
	Granularity = 2 << 20
)

// GPU is the device that a pool's memory belongs to.
type GPU struct {
	Driver  cuda.Driver
	Context cuda.Context
	Ordinal int
}

// Graph is a tie to a graph.
type Graph interface {
	// Gone reports whether the graph and everything made of it is gone.
	Gone() bool
}

// Pool is an allocator's blocks. Its methods may be called from any goroutine.
type Pool struct {
	gpu     GPU
	ordered bool
	tie     func(cuda.Graph) (Graph, error)

	mu       lockorder.Mutex
	segments []*Segment
	live     map[cuda.Ptr]*block
	free     []*block // by size, then by segment and offset
	captures map[uint64]*capture
	spare    []cuda.Event
	events   uint64 // numbered so far
	number   int    // of the next segment
	stats    Stats
}

// Stats are bytes and numbers of a pool.
type Stats struct {
	InUse    int64 // bytes of allocated blocks
	Cached   int64 // bytes of free blocks
	Peak     int64 // most bytes that were in use at one time
	Blocks   int64 // allocated
	Segments int64 // of the device's memory; they hold InUse and Cached
}

// New makes a pool without memory. tie makes ties to graphs.
func New(gpu GPU, ordered bool, tie func(cuda.Graph) (Graph, error)) *Pool {
	return &Pool{gpu: gpu, ordered: ordered, tie: tie, mu: lockorder.Mutex{Level: lockorder.Memory},
		live: map[cuda.Ptr]*block{}, captures: map[uint64]*capture{}}
}

// Segment is memory that a pool was handed.
type Segment struct {
	cuda.Mapping
	// Export is a note of its owner: where the segment is registered.
	Export any
	number int
	first  *block
}

// block is a part of a segment. Those of one segment are in a list by address.
type block struct {
	segment    *Segment
	base       cuda.Ptr
	bytes      int64
	prev, next *block
	free       bool
	uses       []use // of a free block

	// Of an allocated one:
	capture *capture // that it was allocated in
	streams []place  // of RecordStream
	leaving bool     // it is being freed
	changes int      // how often it was given out, cut, merged or freed
}

// before orders free blocks: best fit takes the first that is large enough.
func before(a, b *block) int {
	return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.segment.number, b.segment.number),
		cmp.Compare(a.base, b.base))
}

// Rounded returns the bytes that a block of so many takes; 0 if there can be no such block.
func Rounded(bytes int64) int64 {
	if bytes <= 0 || bytes > 1<<62 {
		return 0
	}
	return (bytes + Align - 1) / Align * Align
}

// Add hands the pool a segment.
func (p *Pool) Add(m cuda.Mapping, export any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &Segment{Mapping: m, Export: export, number: p.number}
	p.number++
	s.first = &block{segment: s, base: m.Address, bytes: m.Bytes}
	p.segments = append(p.segments, s)
	p.stats.Segments++
	p.release(s.first, nil)
}

// Alloc returns a block for use in a stream; 0 where the pool has none. bytes is a Rounded size.
func (p *Pool) Alloc(bytes int64, stream cuda.Stream) (cuda.Ptr, error) {
	at, err := p.where(stream)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	b := p.choose(bytes, at)
	if b == nil {
		p.mu.Unlock()
		return 0, nil
	}
	uses := p.take(b, bytes, at)
	p.mu.Unlock()
	err = p.await(at, uses)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.forget(b)
		p.release(b, uses)
		return 0, err
	}
	p.drop(uses)
	return b.base, nil
}

// choose returns the free block that a stream gets, or nil. p.mu is held.
func (p *Pool) choose(bytes int64, at place) *block {
	serves := func(b *block) bool { return p.all(b.uses, func(u use) bool { return p.serves(u, at) }) }
	if b := p.first(bytes, serves); b != nil {
		return b
	}
	if p.ordered {
		if at.capture != nil {
			return nil
		}
		return p.first(bytes, p.uncaptured)
	}
	if !p.settle() {
		return nil
	}
	return p.first(bytes, serves)
}

// uncaptured reports whether no graph uses a free block. p.mu is held.
func (p *Pool) uncaptured(b *block) bool {
	return p.all(b.uses, func(u use) bool { return u.capture == nil || u.capture.passed })
}

// Serves reports whether an ordered pool has a free block of so many bytes, a Rounded size, for any stream that is not
// being captured.
func (p *Pool) Serves(bytes int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first(bytes, p.uncaptured) != nil
}

func (p *Pool) all(uses []use, is func(use) bool) bool {
	return !slices.ContainsFunc(uses, func(u use) bool { return !is(u) })
}

// first returns the smallest free block of so many bytes or more that fits. p.mu is held.
func (p *Pool) first(bytes int64, fits func(*block) bool) *block {
	from, _ := slices.BinarySearchFunc(p.free, bytes, func(b *block, bytes int64) int {
		if b.bytes < bytes {
			return -1
		}
		return 1
	})
	if i := slices.IndexFunc(p.free[from:], fits); i >= 0 {
		return p.free[from+i]
	}
	return nil
}

// take gives out the front of a free block, and returns the uses that it had. p.mu is held.
func (p *Pool) take(b *block, bytes int64, at place) []use {
	p.unlist(b)
	if b.bytes > bytes {
		rest := &block{segment: b.segment, base: b.base + cuda.Ptr(bytes), bytes: b.bytes - bytes, prev: b, next: b.next}
		if b.next != nil {
			b.next.prev = rest
		}
		b.next, b.bytes = rest, bytes
		rest.uses = p.share(b.uses)
		p.list(rest)
	}
	uses := b.uses
	b.uses, b.capture, b.streams = nil, at.capture, nil
	b.changes++
	p.live[b.base] = b
	p.stats.Blocks++
	p.stats.InUse += b.bytes
	p.stats.Peak = max(p.stats.Peak, p.stats.InUse)
	return uses
}

// forget undoes the count of take. p.mu is held.
func (p *Pool) forget(b *block) {
	delete(p.live, b.base)
	p.stats.Blocks--
	p.stats.InUse -= b.bytes
}

// release makes a block free, with its uses, and merges it with its neighbours. p.mu is held.
func (p *Pool) release(b *block, uses []use) {
	b.uses, b.capture, b.streams, b.leaving = uses, nil, nil, false
	p.list(b)
	p.merge(b)
}

// merge joins a free block with its free neighbours, where that is as good as having them apart. p.mu is held.
func (p *Pool) merge(b *block) {
	for {
		switch {
		case b.next != nil && b.next.free && p.joins(b, b.next):
		case b.prev != nil && b.prev.free && p.joins(b.prev, b):
			b = b.prev
		default:
			return
		}
		p.absorb(b) // its uses are more now: others may join
	}
}

// joins reports whether two free neighbours become one. Blocks of different graphs stay apart, and those of a graph
// from all others: a graph may live for as long as the program. So do, in a plain pool, blocks of different streams:
// each would have to wait for the other's stream.
func (p *Pool) joins(a, b *block) bool {
	if !graphsWithin(a, b) || !graphsWithin(b, a) {
		return false
	}
	if p.ordered || len(a.uses) == 0 || len(b.uses) == 0 {
		return true
	}
	return len(a.uses) == len(b.uses) && p.all(a.uses, func(u use) bool { return slices.ContainsFunc(b.uses, u.same) })
}

// graphsWithin reports whether every graph that uses a free block uses the other one too.
func graphsWithin(a, b *block) bool {
	return !slices.ContainsFunc(a.uses, func(u use) bool {
		return u.capture != nil && !slices.ContainsFunc(b.uses, func(v use) bool { return u.capture == v.capture })
	})
}

// absorb makes a free block and the next one, which is free too, one block. p.mu is held.
func (p *Pool) absorb(b *block) {
	next := b.next
	p.unlist(b)
	p.unlist(next)
	b.bytes += next.bytes
	if b.next = next.next; b.next != nil {
		b.next.prev = b
	}
	b.uses = p.join(b.uses, next.uses)
	next.uses = nil
	p.list(b)
}

// list and unlist keep free. p.mu is held.
func (p *Pool) list(b *block) {
	at, _ := slices.BinarySearchFunc(p.free, b, before)
	p.free = slices.Insert(p.free, at, b)
	b.free = true
	b.changes++
	p.stats.Cached += b.bytes
}

func (p *Pool) unlist(b *block) {
	at, _ := slices.BinarySearchFunc(p.free, b, before)
	p.free = slices.Delete(p.free, at, at+1)
	b.free = false
	p.stats.Cached -= b.bytes
}

// Free gives a block back, after what is in the stream by now and in the streams that were recorded on it.
func (p *Pool) Free(at cuda.Ptr, stream cuda.Stream) error {
	p.mu.Lock()
	b, err := p.find("free", at)
	if err != nil {
		p.mu.Unlock()
		return err
	}
	b.leaving = true
	streams, home := b.streams, b.capture
	p.mu.Unlock()
	uses, err := p.record(append([]place{{handle: stream}}, streams...), home)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		b.leaving = false
		p.drop(uses)
		return err
	}
	p.forget(b)
	p.release(b, uses)
	return nil
}

// RecordStream makes Free wait for another stream's work too. It rejects a thread's own stream: the thread that frees
// may be another one, whose own stream has the same handle.
func (p *Pool) RecordStream(address cuda.Ptr, stream cuda.Stream) error {
	if stream == cuda.PerThreadStream {
		return plugin.Errorf(plugin.InvalidArgument, "stream %d is the calling thread's own (CU_STREAM_PER_THREAD), and another thread may free the memory; pass a stream that was created", cuda.PerThreadStream)
	}
	at, err := p.where(stream)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b, err := p.find("record_stream", address)
	if err == nil && !slices.Contains(b.streams, at) {
		b.streams = append(b.streams, at)
	}
	return err
}

// find returns the allocated block at an address. p.mu is held.
func (p *Pool) find(what string, at cuda.Ptr) (*block, error) {
	if b := p.live[at]; b != nil && !b.leaving {
		return b, nil
	}
	for _, s := range p.segments {
		if at-s.Address >= cuda.Ptr(s.Bytes) {
			continue
		}
		b := s.first
		for at-b.base >= cuda.Ptr(b.bytes) {
			b = b.next
		}
		if b.free || b.leaving {
			return nil, plugin.Errorf(plugin.InvalidArgument, "%s of %#x: the memory is free already", what, uint64(at))
		}
		return nil, plugin.Errorf(plugin.InvalidArgument, "%s of %#x: it lies %d bytes into the block at %#x; want the address that alloc returned",
			what, uint64(at), int64(at-b.base), uint64(b.base))
	}
	return nil, plugin.Errorf(plugin.InvalidArgument, "%s of %#x: it is not memory of this allocator, which serves device %d",
		what, uint64(at), p.gpu.Ordinal)
}

// Fits reports whether there is a free block of so many bytes, a Rounded size, that nothing uses any more.
func (p *Pool) Fits(bytes int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ordered {
		p.settle()
	}
	return p.first(bytes, func(b *block) bool { return len(b.uses) == 0 }) != nil
}

// Stats returns what the pool has.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Used returns the bytes of the free blocks that work or graphs still use on this rank. It notes nothing.
func (p *Pool) Used() (bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.free {
		if !p.all(b.uses, p.look) {
			bytes += b.bytes
		}
	}
	return bytes
}

// Idle takes out the segments that nothing uses any more, and returns them for their owner to release. With look it
// counts what is over on this rank, which in an ordered pool is for its end only.
func (p *Pool) Idle(look bool) []*Segment {
	p.mu.Lock()
	defer p.mu.Unlock()
	if look {
		p.settle()
	}
	var idle []*Segment
	p.segments = slices.DeleteFunc(p.segments, func(s *Segment) bool {
		if b := s.first; !b.free || b.next != nil || len(b.uses) > 0 {
			return false
		}
		p.unlist(s.first)
		p.stats.Segments--
		idle = append(idle, s)
		return true
	})
	return idle
}

// Close destroys the pool's events. It has no segments any more.
func (p *Pool) Close() (err error) {
	p.mu.Lock()
	spare := p.spare
	p.spare = nil
	p.mu.Unlock()
	for _, e := range spare {
		if failed := p.gpu.Driver.DestroyEvent(p.gpu.Context, e); err == nil {
			err = failed
		}
	}
	return err
}
