package memory

import (
	"container/list"
	"errors"
	"sync"

	"github.com/shunt-ccl/shunt/plugin"
)

// Key names what is mapped: an allocation of a rank, never its address.
type Key struct {
	Rank       int // of the exporter
	Generation uint64
}

// Cache keeps mappings for use again, the least recently used ones up to a
// limit; those in use are never dropped and do not count against it. A hit
// here says nothing about the caches of other ranks, so it must not decide
// what a rank does in a collective step.
type Cache struct {
	limit int

	mu      sync.Mutex
	entries map[Key]*entry
	idle    list.List // of *entry, most recently used first
	closed  bool
}

type entry struct {
	key     Key
	refs    int
	stale   bool          // dropped with its last use
	ready   chan struct{} // closed when mapping and err are set
	mapping *Mapping
	err     error
	element *list.Element // in idle, if refs is 0
}

// NewCache makes a cache that keeps at most limit mappings that nobody uses.
func NewCache(limit int) *Cache {
	return &Cache{limit: max(limit, 0), entries: map[Key]*entry{}}
}

// Acquire returns the mapping of key, made by open if it is not there. Each
// success is paired with one Release; the mapping stays the cache's. Callers
// that want one key at once share one call of open.
func (c *Cache) Acquire(key Key, open func() (*Mapping, error)) (*Mapping, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, plugin.Errorf(plugin.Closed, "the cache of mappings is closed")
	}
	e := c.entries[key]
	if e != nil {
		e.refs++
		if e.element != nil {
			c.idle.Remove(e.element)
			e.element = nil
		}
		c.mu.Unlock()
		<-e.ready
		return e.mapping, e.err
	}
	e = &entry{key: key, refs: 1, ready: make(chan struct{})}
	c.entries[key] = e
	c.mu.Unlock()

	e.mapping, e.err = open()
	if e.err != nil {
		c.mu.Lock()
		if c.entries[key] == e {
			delete(c.entries, key)
		}
		c.mu.Unlock()
	}
	close(e.ready)
	return e.mapping, e.err
}

// Release ends one use of a mapping that Acquire returned for key. The error
// is that of unmapping what the limit has no room for.
func (c *Cache) Release(key Key, m *Mapping) error {
	c.mu.Lock()
	e := c.entries[key]
	if e == nil || e.mapping != m || e.refs == 0 {
		c.mu.Unlock()
		return plugin.Errorf(plugin.InvalidArgument, "release of generation %d of rank %d, which is not in use",
			key.Generation, key.Rank)
	}
	e.refs--
	var drop []*Mapping
	if e.refs == 0 {
		if e.stale || c.closed {
			delete(c.entries, key)
			drop = append(drop, e.mapping)
		} else {
			e.element = c.idle.PushFront(e)
			drop = c.trim(c.limit)
		}
	}
	c.mu.Unlock()
	return closeMappings(drop)
}

// trim takes idle entries out until limit remain. The caller holds mu.
func (c *Cache) trim(limit int) []*Mapping {
	var drop []*Mapping
	for c.idle.Len() > limit {
		e := c.idle.Remove(c.idle.Back()).(*entry)
		e.element = nil
		delete(c.entries, e.key)
		drop = append(drop, e.mapping)
	}
	return drop
}

// Forget drops what a rank exported: at once where it is idle, else with its
// last use. A negative rank means all ranks.
func (c *Cache) Forget(rank int) error {
	c.mu.Lock()
	var drop []*Mapping
	for key, e := range c.entries {
		if rank >= 0 && key.Rank != rank {
			continue
		}
		if e.refs > 0 {
			e.stale = true
			continue
		}
		c.idle.Remove(e.element)
		delete(c.entries, key)
		drop = append(drop, e.mapping)
	}
	c.mu.Unlock()
	return closeMappings(drop)
}

// Len returns the number of mappings, in use or idle.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// Close drops everything idle; what is in use goes with its last Release.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	return c.Forget(-1)
}

func closeMappings(mappings []*Mapping) error {
	var errs []error
	for _, m := range mappings {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
