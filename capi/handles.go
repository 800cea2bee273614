package main

import (
	"sync"
	"sync/atomic"

	"github.com/shunt-ccl/shunt/plugin"
)

// A handle is a number that C sees as a pointer:
//
//	bits 56–63  kind of object, never 0, so that no handle is NULL and none is
//	            an address that a program could own
//	bits 24–55  generation of the slot, never 0
//	bits  0–23  slot
//
// A slot's generation grows each time it is given out, so a handle that was released differs from its successor until
// the generation has wrapped.
type handle uint64

// kind tells the objects behind handles apart.
type kind uint8

const (
	kindComm      kind = 0xC1
	kindWindow    kind = 0xC2
	kindRequest   kind = 0xC3
	kindAllocator kind = 0xC4
)

const (
	slotBits  = 24
	chunkBits = 10
	chunkSize = 1 << chunkBits
	maxChunks = 1 << 10 // a million objects of a kind
)

// entry is an object and the handle it was given out under.
type entry[T any] struct {
	handle handle
	object *T
}

type slot[T any] struct {
	entry      atomic.Pointer[entry[T]]
	generation uint32 // of the last handle; under table.mu
}

// table is the handles of one kind. Lookups take no lock: a slot holds a
// pointer to an immutable entry that carries its own handle, so a lookup
// either sees the entry it asks for or none.
type table[T any] struct {
	kind   kind
	what   string // for messages: "communicator"
	chunks [maxChunks]atomic.Pointer[[chunkSize]slot[T]]

	mu   sync.Mutex
	free []uint32
	next uint32
}

// add gives the object a handle.
func (t *table[T]) add(object *T) (handle, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var number uint32
	if n := len(t.free); n > 0 {
		number = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		if t.next == maxChunks*chunkSize {
			return 0, plugin.Errorf(plugin.OutOfMemory, "%d handles of kind %s are in use; close some", t.next, t.what)
		}
		number = t.next
		t.next++
		if chunk := &t.chunks[number>>chunkBits]; chunk.Load() == nil {
			chunk.Store(new([chunkSize]slot[T]))
		}
	}
	s := t.slot(number)
	s.generation++
	if s.generation == 0 {
		s.generation = 1
	}
	h := handle(t.kind)<<56 | handle(s.generation)<<slotBits | handle(number)
	s.entry.Store(&entry[T]{handle: h, object: object})
	return h, nil
}

// slot returns a number's entry, or nil for a number never given out.
func (t *table[T]) slot(number uint32) *slot[T] {
	if number >= maxChunks*chunkSize {
		return nil
	}
	chunk := t.chunks[number>>chunkBits].Load()
	if chunk == nil {
		return nil
	}
	return &chunk[number&(chunkSize-1)]
}

// get returns the object behind a handle, or nil if there is none.
func (t *table[T]) get(h handle) *T {
	if s := t.slot(uint32(h & (1<<slotBits - 1))); s != nil {
		if e := s.entry.Load(); e != nil && e.handle == h {
			return e.object
		}
	}
	return nil
}

// find is get with an error that says why the handle is invalid.
func (t *table[T]) find(h handle) (*T, error) {
	if object := t.get(h); object != nil {
		return object, nil
	}
	return nil, t.unknown(h)
}

func (t *table[T]) unknown(h handle) error {
	switch {
	case h == 0:
		return plugin.Errorf(plugin.InvalidArgument, "%s is NULL", t.what)
	case kind(h>>56) == t.kind:
		return plugin.Errorf(plugin.InvalidArgument, "%s %#x is closed or was never made", t.what, uint64(h))
	case kind(h>>56) >= kindComm && kind(h>>56) <= kindAllocator:
		return plugin.Errorf(plugin.InvalidArgument, "%#x is a handle of another kind, not of %s", uint64(h), t.one())
	}
	return plugin.Errorf(plugin.InvalidArgument, "%#x is not %s", uint64(h), t.one())
}

// one returns the kind with its article.
func (t *table[T]) one() string {
	if t.kind == kindAllocator {
		return "an " + t.what
	}
	return "a " + t.what
}

// remove takes a handle out of use. Of several callers one gets the object.
func (t *table[T]) remove(h handle) (*T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	number := uint32(h & (1<<slotBits - 1))
	s := t.slot(number)
	if s == nil {
		return nil, t.unknown(h)
	}
	e := s.entry.Load()
	if e == nil || e.handle != h {
		return nil, t.unknown(h)
	}
	s.entry.Store(nil)
	t.free = append(t.free, number)
	return e.object, nil
}

// removeIf takes every handle out of use whose object matches.
func (t *table[T]) removeIf(match func(*T) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for number := range t.next {
		s := t.slot(number)
		if e := s.entry.Load(); e != nil && match(e.object) {
			s.entry.Store(nil)
			t.free = append(t.free, number)
		}
	}
}

// live returns the number of handles in use.
func (t *table[T]) live() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(t.next) - len(t.free)
}
