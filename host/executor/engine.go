package executor

/*
#cgo CFLAGS: -O3 -Wall -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -I${SRCDIR}/../../plugin -fvisibility=hidden
#cgo LDFLAGS: -lm
#cgo noescape sx_run
#cgo nocallback sx_run
#include "engine.h"
*/
import "C"

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// ControlBytes is the size of a control page without room for notes of messages,
// see MessageBytes.
const ControlBytes = C.SX_CONTROL_BYTES

// MaxEntries is the number of entries of an engine's table of regions.
const MaxEntries = C.SX_CHUNK * C.SX_CHUNKS

// BaseMultiple divides every base in the table.
const BaseMultiple = C.SX_CHUNK

// Memory is a range of mapped memory. The engine does not own it.
type Memory struct {
	Base  unsafe.Pointer
	Bytes int64
}

// Engine runs the programs of one rank of one communicator. One goroutine at a
// time may run it; Abort, Waiting, PeerRecord, RejectCall, PeerRejection, Contradiction, Disagreement,
// SetRegion and ClearRegion may be called from any goroutine while it runs.
type Engine struct {
	c           *C.sx_engine
	rank, world int

	record   [6]uint64 // of the next run: seq, what, how, count, number, mark
	recorded bool
	ticks    uint64 // and the clock when the flight recorder was set up
	made     time.Time

	group  groupMemory
	paused paused

	messages [][kinds][2]Messages // to and from every rank
	past     past                 // see RememberCalls

	undelayed C.sx_policy   // what delays have replaced
	turnDue   bool          // the next run goes through C; see stamp
	tables    atomic.Uint64 // changes with regions and control pages

	mu       sync.RWMutex // guards what follows and c's pages against Close
	closed   bool
	controls []Memory
}

// NewEngine makes the engine of one rank. It spins briefly before it sleeps;
// see SetOversubscribed.
func NewEngine(rank, world int) (*Engine, error) {
	if world < 1 || world > plugin.MaxWorld || rank < 0 || rank >= world {
		return nil, plugin.Errorf(plugin.InvalidArgument, "the executor's rank %d is not in a world of %d ranks", rank, world)
	}
	c := C.sx_engine_new(C.int32_t(rank), C.int32_t(world))
	if c == nil {
		return nil, plugin.Errorf(plugin.OutOfMemory, "executor of rank %d: cannot allocate memory for an engine of %d ranks",
			rank, world)
	}
	e := &Engine{c: c, rank: rank, world: world, controls: make([]Memory, world),
		messages: make([][kinds][2]Messages, world)}
	e.SetOversubscribed(false)
	// The header outlives Close, so that a late Run or Abort finds a closed
	// engine rather than freed memory.
	runtime.AddCleanup(e, func(c *C.sx_engine) {
		C.sx_engine_close(c)
		C.sx_engine_free(c)
	}, c)
	return e, nil
}

// Close waits for the run in flight, which it aborts, and frees the engine's
// memory. Mapped memory and programs stay their owners', which may unmap once
// Close has returned. Later runs return Closed.
func (e *Engine) Close() {
	e.Abort(plugin.Closed, e.rank)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	e.tables.Add(1)
	C.sx_engine_close(e.c)
	clear(e.controls)
	e.noteMessages()
	e.group.free()
}

// SetControl tells where a rank's control page is mapped, this rank's own
// included. Every rank must see the same page, zero-filled before its first
// use; for a rank on another host a page of this rank's own may stand in, which
// SetReport fills. A rank without a page is not woken, and finds out by itself
// within a tenth of a second. No run may be in flight.
func (e *Engine) SetControl(rank int, page Memory) error {
	if rank < 0 || rank >= e.world {
		return e.refuse(plugin.InvalidArgument, "rank %d, whose control page it is, is not in a world of %d ranks", rank,
			e.world)
	}
	if page.Base != nil && (page.Bytes < ControlBytes || uintptr(page.Base)%64 != 0) {
		return e.refuse(plugin.InvalidArgument, "control page of rank %d has %d bytes at %p, needs %d aligned to 64", rank,
			page.Bytes, page.Base, ControlBytes)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return e.refuse(plugin.Closed, "it is closed")
	}
	e.tables.Add(1)
	e.controls[rank] = page
	C.sx_engine_set_control(e.c, C.int32_t(rank), page.Base)
	if rank == e.rank {
		e.noteMessages()
	}
	return nil
}

// SetRegion sets entry base+id of the table for one rank: what a plan of the
// endpoint at that base calls region id. base is a multiple of BaseMultiple,
// and base+id below MaxEntries; windows may take entries beyond the
// endpoint's sixteen. A region must not change while a run uses it.
func (e *Engine) SetRegion(base, id uint32, rank int, m Memory) error {
	if rank < 0 || rank >= e.world || base%BaseMultiple != 0 || uint64(base)+uint64(id) >= MaxEntries {
		return e.refuse(plugin.InvalidArgument, "region %d+%d of rank %d is outside the table", base, id, rank)
	}
	if m.Bytes < 0 || (m.Base == nil && m.Bytes > 0) {
		return e.refuse(plugin.InvalidArgument, "region %d+%d of rank %d has %d bytes at %p", base, id, rank, m.Bytes, m.Base)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return e.refuse(plugin.Closed, "it is closed")
	}
	e.tables.Add(1)
	if C.sx_engine_set_region(e.c, C.uint64_t(uint64(base)+uint64(id)), C.int32_t(rank), m.Base, C.int64_t(m.Bytes)) != 0 {
		return e.refuse(plugin.OutOfMemory, "cannot allocate memory for the table of regions")
	}
	return nil
}

// ClearRegion removes entry base+id of every rank; a plan that uses it fails.
func (e *Engine) ClearRegion(base, id uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tables.Add(1)
	if !e.closed {
		C.sx_engine_clear_region(e.c, C.uint64_t(uint64(base)+uint64(id)))
	}
}

// SetPeerProcess tells which process a rank is, so that plans may copy from its
// memory (plugin.SpacePeer) as ptrace's rules allow this process to: usually all
// memory of processes of the same user. The addresses are those that ranks publish,
// and are not limited to any range. 0 forbids it again. No run may be in flight.
func (e *Engine) SetPeerProcess(rank, pid int) error {
	if rank < 0 || rank >= e.world || pid < 0 || pid > math.MaxInt32 {
		return e.refuse(plugin.InvalidArgument, "process %d is said to be of rank %d in a world of %d ranks", pid, rank,
			e.world)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return e.refuse(plugin.Closed, "it is closed")
	}
	C.sx_engine_set_process(e.c, C.int32_t(rank), C.int32_t(pid))
	return nil
}

// setGrace changes how long a failed read of a peer waits for word of why. No run
// may be in flight.
func (e *Engine) setGrace(d time.Duration) { e.c.grace = C.int64_t(d) }

// Abort stops the run in flight and every later one: they return Aborted with
// a Failure that carries cause and rank (-1: none). The first abort stays.
func (e *Engine) Abort(cause plugin.Code, rank int) {
	if cause <= plugin.OK || cause > 0xFFFF {
		cause = plugin.Aborted
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	if !e.closed {
		C.sx_engine_abort(e.c, C.uint32_t(cause), C.int32_t(rank))
	}
}

// Waiting reports whether a run waits beyond its first spins, for which rank
// (-1: none in particular) and how long already, and the plan's step that
// waits. Of several waiting tracks it names the first.
func (e *Engine) Waiting() (waiting bool, rank int, since time.Duration, step int) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed {
		return false, -1, 0, -1
	}
	var r, s C.int32_t
	d := C.sx_engine_waiting(e.c, &r, &s)
	if d < 0 {
		return false, -1, 0, -1
	}
	return true, int(r), time.Duration(d), int(s)
}

// Unsatisfied reports whether the semaphore of the rank that Waiting names has
// not reached what the run waits for. It looks at the memory itself, so a run
// whose thread was not scheduled yet does not count as one that waits for nothing.
func (e *Engine) Unsatisfied() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return !e.closed && C.sx_engine_unsatisfied(e.c) != 0
}

// Native returns which call of a transport's start or poll the run is in: a number that no other call has, or 0 while
// it is in none; the base of the endpoint, and the run's deadline.
func (e *Engine) Native() (call uint64, base uint32, deadline time.Duration) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed {
		return 0, 0, 0
	}
	var of C.uint32_t
	var limit C.int64_t
	call = uint64(C.sx_engine_native(e.c, &of, &limit))
	return call, uint32(of), time.Duration(limit)
}

// Policy says how a run waits: Spins polls with a pause of some 10 ns to 50 ns
// between them, then Yields of the processor, but no longer than 0.3 ms, then
// sleep until a peer rings. A run does not spin for a peer that it last saw on
// its own processor. A sleeper on another processor takes 5 µs to 50 µs to wake.
type Policy struct {
	Spins  uint32
	Yields uint32
}

// SetPolicy changes how runs wait. No run may be in flight.
func (e *Engine) SetPolicy(p Policy) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.c.policy = C.sx_policy{spins: C.uint32_t(p.Spins), yields: C.uint32_t(p.Yields), slice_usec: 100000}
}

// SetOversubscribed chooses the policy for a machine with a processor for
// every local rank (false), or with fewer (true): then spinning keeps the very
// peer that is waited for from running.
func (e *Engine) SetOversubscribed(oversubscribed bool) {
	if oversubscribed {
		e.SetPolicy(Policy{Spins: 10, Yields: 2000})
	} else {
		e.SetPolicy(Policy{Spins: 2000, Yields: 2000})
	}
}
