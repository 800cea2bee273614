package nccltest

// #include "fake.h"
import "C"

import (
	"fmt"
	"slices"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// registered is memory that a communicator knows, as it was then.
type registered struct {
	at, bytes uint64
	ids       []uint64 // the driver's, of its first and its last byte
}

var records struct {
	calls      int
	refused    int // the result of ncclCommRegister, for one rank
	rank       int
	violations []string
}

// Registrations returns how often ncclCommRegister was called so far, and what the communicators of all ranks know now:
// address and length, by rank.
func Registrations() (calls int, known map[int][][2]uint64) {
	machine.Lock()
	defer machine.Unlock()
	known = map[int][][2]uint64{}
	for id, c := range machine.comms {
		if c.child != 0 && c.child != id { // the parent, which is the same
			continue
		}
		for _, r := range c.known {
			known[c.rank] = append(known[c.rank], [2]uint64{r.at, r.bytes})
		}
	}
	return records.calls, known
}

// Refuse makes ncclCommRegister return a result from now on, on one rank or on all (-1); 0: none.
func Refuse(rank, result int) {
	machine.Lock()
	defer machine.Unlock()
	records.rank, records.refused = rank, result
}

// Violations returns, and forgets, what NCCL calls undefined behaviour: registrations of memory that is not there, or
// twice; operations on memory whose registration is of other memory that was there before, or was ended before they
// have run; ranks of which only some pass registered memory; and registrations that are left in the end.
func Violations() []string {
	machine.Lock()
	defer machine.Unlock()
	v := records.violations
	records.violations = nil
	return v
}

// violate notes a violation. machine's lock is held.
func violate(format string, args ...any) {
	records.violations = append(records.violations, fmt.Sprintf(format, args...))
}

// idsOf returns what identifies the memory of a range, or nil if it is not there.
func (c *communicator) idsOf(at, bytes uint64) []uint64 {
	var ids []uint64
	for _, p := range []uint64{at, at + bytes - 1} {
		info, err := c.driver.Pointer(c.ctx, cuda.Ptr(p))
		if err != nil || info.Kind != cuda.PointerDevice {
			return nil
		}
		ids = append(ids, info.BufferID)
	}
	return ids
}

//export goKnow
func goKnow(comm, at, bytes C.uint64_t, handle *C.uint64_t) C.int {
	c := lookup(comm)
	if c == nil || bytes == 0 {
		return 4
	}
	ids := c.idsOf(uint64(at), uint64(bytes))
	machine.Lock()
	defer machine.Unlock()
	records.calls++
	if records.refused != 0 && (records.rank == c.rank || records.rank < 0) {
		return C.int(records.refused)
	}
	if ids == nil {
		violate("rank %d registers %d bytes at %#x, which are not memory of the device", c.rank, uint64(bytes), uint64(at))
		return 1
	}
	for _, r := range c.known {
		if r.at == uint64(at) && r.bytes == uint64(bytes) {
			violate("rank %d registers %d bytes at %#x twice", c.rank, r.bytes, r.at)
		}
	}
	machine.next++
	c.known[machine.next] = &registered{uint64(at), uint64(bytes), ids}
	*handle = C.uint64_t(machine.next)
	return 0
}

//export goForget
func goForget(comm, handle C.uint64_t) C.int {
	c := lookup(comm)
	machine.Lock()
	defer machine.Unlock()
	if c == nil || c.known[uint64(handle)] == nil {
		violate("a handle is given back that no registration has")
		return 5
	}
	delete(c.known, uint64(handle))
	return 0
}

// use is the registrations that an operation uses.
type use struct {
	handles []uint64
	all     bool // all of its memory is registered
}

// uses finds the registrations of the memory of operations. Like NCCL it compares addresses alone, so it also finds
// registrations of memory that was freed since.
func (c *communicator) uses(ops []C.fake_op) []use {
	list := make([]use, len(ops))
	for i, op := range ops {
		list[i].all = true
		for _, s := range c.spans(op) {
			ids := c.idsOf(s[0], s[1])
			h := c.find(s, ids)
			if h == 0 {
				list[i].all = false
				continue
			}
			list[i].handles = append(list[i].handles, h)
		}
	}
	return list
}

// find returns the handle of a range's registration, or 0. ids are those of the range now.
func (c *communicator) find(s [2]uint64, ids []uint64) (handle uint64) {
	machine.Lock()
	defer machine.Unlock()
	for h, r := range c.known {
		if s[0] < r.at || s[0]+s[1] > r.at+r.bytes {
			continue
		}
		handle = h
		other := r.ids[0] == r.ids[1] && !slices.Equal(ids, r.ids) // one mapping then, and not that one now
		if exact := s == [2]uint64{r.at, r.bytes}; other || exact && !slices.Equal(ids, r.ids) {
			violate("rank %d passes %d bytes at %#x, where other memory is registered", c.rank, s[1], s[0])
		}
	}
	return handle
}

// spans returns the memory of an operation that NCCL reads and writes on this rank: addresses and lengths.
func (c *communicator) spans(op C.fake_op) (list [][2]uint64) {
	bytes := uint64(op.count) * uint64(plugin.DType(op.dtype).Bytes())
	send, recv := bytes, bytes
	switch op.kind {
	case C.FAKE_ALL_GATHER:
		recv *= uint64(c.world.size)
	case C.FAKE_REDUCE_SCATTER:
		send *= uint64(c.world.size)
	case C.FAKE_BROADCAST:
		if int(op.root) != c.rank {
			send = 0
		}
	case C.FAKE_REDUCE:
		if int(op.root) != c.rank {
			recv = 0
		}
	case C.FAKE_SEND:
		recv = 0
	case C.FAKE_RECV:
		send = 0
	}
	for _, s := range [][2]uint64{{uint64(op.send), send}, {uint64(op.recv), recv}} {
		if s[0] != 0 && s[1] != 0 {
			list = append(list, s)
		}
	}
	return list
}

// stillKnown checks, as a batch runs, that the registrations are there which it was enqueued with.
func (c *communicator) stillKnown(b batch) {
	machine.Lock()
	defer machine.Unlock()
	for _, u := range b.uses {
		for _, h := range u.handles {
			if c.known[h] == nil {
				violate("rank %d: a registration was ended before an operation that uses it has run", c.rank)
			}
		}
	}
}

// compare checks that all ranks pass registered memory, or none.
func (r *round) compare() {
	machine.Lock()
	defer machine.Unlock()
	for rank, known := range r.known {
		if known != r.known[0] {
			violate("rank %d passes registered memory: %v; rank 0: %v", rank, known, r.known[0])
		}
	}
}
