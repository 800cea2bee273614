package executor

/*
#include <stdlib.h>
#include "engine.h"
*/
import "C"

import (
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Arguments fill a program's slots in a launch. Slots
// SlotSendBytes and SlotRecvBytes are the lengths of Send and Recv, which may
// be null when they are 0. Arrays are the per-rank arrays in the order of the
// slots, 4*world entries, or nil for zeros. PeerRecv is for plans of symmetric
// requests on a GPU: where each rank's receive memory, as long as this rank's,
// is mapped for it; nil for all others.
type Arguments struct {
	Send, Recv unsafe.Pointer
	Slots      [plugin.SlotArrays]int64
	Arrays     []int64
	PeerRecv   []cuda.Ptr
	Absolute   bool // of a Device: displacements are addresses, and Send and Recv are nil
}

// Run executes a program and returns when it has ended on this rank. A deadline of 0
// or less means none; it counts from the first time the run looks at the clock: when
// it first waits longer than a spin, or after some megabytes. The error is a
// *plugin.Error whose cause is a
// *Failure. After a failure what the run wrote is undefined.
func (e *Engine) Run(p *Program, a *Arguments, deadline time.Duration) error {
	_, err := e.RunFor(p, a, deadline, 0)
	return err
}

// RunFor is like Run, for a caller with a block limit: a run that still waits for a peer when
// that is over pauses, and stays in flight until Resume has taken it to its end. p, a and
// the memory stay in use until then. It counts as the deadline does; 0 or less is
// any amount.
func (e *Engine) RunFor(p *Program, a *Arguments, deadline, blockLimit time.Duration) (paused bool, err error) {
	if err := e.check(p, a); err != nil {
		return false, err
	}
	var record *C.uint64_t
	if e.recorded {
		record, e.recorded = (*C.uint64_t)(&e.record[0]), false
	}
	var arrays *C.int64_t
	if len(a.Arrays) > 0 {
		arrays = (*C.int64_t)(&a.Arrays[0])
	}
	// Addresses as numbers: Go memory does not move, a keeps it alive, and a
	// stack does not move while its goroutine is in C.
	reason := C.sx_run(C.uintptr_t(uintptr(unsafe.Pointer(e.c))), C.uintptr_t(uintptr(unsafe.Pointer(p.c))),
		C.uintptr_t(uintptr(a.Send)), C.uintptr_t(uintptr(a.Recv)),
		(*C.int64_t)(&a.Slots[0]), arrays, C.int64_t(deadline), C.int64_t(blockLimit), record)
	runtime.KeepAlive(a)
	runtime.KeepAlive(e)
	switch reason {
	case C.SX_PAUSED:
		e.pause(record, a, arrays)
		return true, nil
	case C.SX_NATIVE_STUCK:
		keep(a)
	}
	return false, e.ended(reason)
}

// kept pins the memory of calls whose native function has not returned, for good: the
// function may still write to it.
var kept keeper

type keeper struct {
	sync.Mutex
	pinners []runtime.Pinner
}

// add takes over what p has pinned.
func (k *keeper) add(p *runtime.Pinner) {
	k.Lock()
	defer k.Unlock()
	k.pinners = append(k.pinners, *p)
	*p = runtime.Pinner{}
}

// pin keeps memory of Go's in place while C holds its address. Null needs nothing.
func (a *Arguments) pin(pinner *runtime.Pinner) {
	if a.Send != nil {
		pinner.Pin(a.Send)
	}
	if a.Recv != nil {
		pinner.Pin(a.Recv)
	}
}

func keep(a *Arguments) {
	var pinner runtime.Pinner
	a.pin(&pinner)
	kept.add(&pinner)
}

func (e *Engine) check(p *Program, a *Arguments) error {
	if p == nil || p.c == nil || p.engine != e {
		return e.refuse(plugin.InvalidArgument, "the program is freed or of another engine")
	}
	if len(a.Arrays) != 0 && len(a.Arrays) != 4*e.world {
		return e.refuse(plugin.InvalidArgument, "%d entries of per-rank arrays, want %d", len(a.Arrays), 4*e.world)
	}
	return nil
}

// Launch is one operation of a group.
type Launch struct {
	Program   *Program
	Arguments Arguments
	Lane      int  // any number; launches of one lane run in order
	Note      Note // of a send or receive, written when it begins
}

// groupMemory is C memory that RunGroup lays launches out in, kept between
// calls.
type groupMemory struct {
	mu     sync.Mutex
	pinner runtime.Pinner
	block  unsafe.Pointer
	bytes  uintptr
	last   map[int]*C.sx_launch
}

func (g *groupMemory) free() {
	g.mu.Lock()
	defer g.mu.Unlock()
	C.free(g.block)
	g.block, g.bytes = nil, 0
}

// RunGroup executes launches together: lanes take turns, launches of a lane
// run in the order given. Otherwise it is as Run; one program may appear any
// number of times.
func (e *Engine) RunGroup(ls []Launch, deadline time.Duration) error {
	_, err := e.RunGroupFor(ls, deadline, 0)
	return err
}

// RunGroupFor is like RunGroup, with the block limit of RunFor. ls is not used once it has
// returned.
func (e *Engine) RunGroupFor(ls []Launch, deadline, blockLimit time.Duration) (paused bool, err error) {
	if len(ls) == 0 {
		return false, nil
	}
	if !e.group.mu.TryLock() {
		return false, e.failure(C.SX_BUSY)
	}
	defer func() {
		if !paused { // else C still looks at the group's memory
			e.group.pinner.Unpin()
			e.group.mu.Unlock()
		}
	}()
	var tracks uint64
	for i := range ls {
		if err := e.check(ls[i].Program, &ls[i].Arguments); err != nil {
			return false, err
		}
		tracks += uint64(ls[i].Program.c.count_tracks)
	}

	// In C memory: the heads of the lanes, the launches, their notes, then their slots.
	slots := int(plugin.SlotArrays) + 4*e.world
	n := uintptr(len(ls))
	launchesAt := n * unsafe.Sizeof(uintptr(0))
	notesAt := launchesAt + n*unsafe.Sizeof(C.sx_launch{})
	slotsAt := notesAt + n*unsafe.Sizeof(C.sx_note{})
	need := slotsAt + n*uintptr(slots)*8
	if need > e.group.bytes {
		block := C.realloc(e.group.block, C.size_t(need))
		if block == nil {
			return false, e.refuse(plugin.OutOfMemory, "cannot allocate memory for a group of %d operations", len(ls))
		}
		e.group.block, e.group.bytes = block, need
	}
	// Go's collector looks at a pointer that is overwritten, in C memory too, and ends the program if that was
	// to Go memory which is gone, as what an earlier group has sent may be.
	clear(unsafe.Slice((*byte)(e.group.block), slotsAt))
	heads := unsafe.Slice((**C.sx_launch)(e.group.block), len(ls))
	launches := unsafe.Slice((*C.sx_launch)(unsafe.Add(e.group.block, launchesAt)), len(ls))
	notes := unsafe.Slice((*C.sx_note)(unsafe.Add(e.group.block, notesAt)), len(ls))
	values := unsafe.Slice((*int64)(unsafe.Add(e.group.block, slotsAt)), len(ls)*slots)

	if e.group.last == nil {
		e.group.last = map[int]*C.sx_launch{}
	}
	clear(e.group.last)
	pinner := &e.group.pinner // the launches hold addresses that may be Go's
	lanes := 0
	for i := range ls {
		l, c := &ls[i], &launches[i]
		l.Arguments.pin(pinner)
		own := values[i*slots : (i+1)*slots]
		copy(own, l.Arguments.Slots[:])
		arrays := (*C.int64_t)(nil)
		if len(l.Arguments.Arrays) > 0 {
			copy(own[plugin.SlotArrays:], l.Arguments.Arrays)
			arrays = (*C.int64_t)(&own[plugin.SlotArrays])
		}
		*c = C.sx_launch{
			program: l.Program.c, send: (*C.char)(l.Arguments.Send), recv: (*C.char)(l.Arguments.Recv),
			slots: (*C.int64_t)(&own[0]), arrays: arrays, index: C.uint32_t(i),
		}
		notes[i] = C.sx_note{word: l.Note.word, value: C.uint64_t(l.Note.value)}
		if last, ok := e.group.last[l.Lane]; ok {
			last.next = c
		} else {
			heads[lanes] = c
			lanes++
		}
		e.group.last[l.Lane] = c
	}
	var record *C.uint64_t
	if e.recorded {
		record, e.recorded = (*C.uint64_t)(&e.record[0]), false
	}
	reason := C.sx_run_group(e.c, &heads[0], C.uint32_t(lanes), C.uint64_t(tracks), &notes[0], C.int64_t(deadline),
		C.int64_t(blockLimit), record)
	runtime.KeepAlive(ls)
	runtime.KeepAlive(e)
	switch reason {
	case C.SX_PAUSED:
		e.pause(record, nil, nil)
		return true, nil
	case C.SX_NATIVE_STUCK:
		kept.add(pinner)
	}
	return false, e.ended(reason)
}
