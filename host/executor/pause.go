package executor

// #include "engine.h"
import "C"

import (
	"runtime"
)

// paused is a run in flight whose caller's block limit is over.
type paused struct {
	group     bool
	record    *C.uint64_t
	arguments *Arguments
	pinner    runtime.Pinner // C keeps the addresses of these between two crossings
}

// pause keeps what C still uses. a is nil for a group, whose memory is C's.
func (e *Engine) pause(record *C.uint64_t, a *Arguments, arrays *C.int64_t) {
	p := &e.paused
	p.group, p.record, p.arguments = a == nil, record, a
	if a != nil {
		p.pinner.Pin(a)
	}
	if arrays != nil {
		p.pinner.Pin(arrays)
	}
}

// Resume takes the run that RunFor or RunGroupFor has paused to its end, which is
// then the error that they would have returned. The caller runs the engine: one
// goroutine, which may be another than the one that began.
func (e *Engine) Resume() error {
	p := &e.paused
	reason := C.sx_resume(e.c, p.record)
	if reason == C.SX_NATIVE_STUCK {
		if p.group {
			kept.add(&e.group.pinner)
		} else {
			keep(p.arguments)
		}
	}
	p.pinner.Unpin()
	group := p.group
	p.group, p.record, p.arguments = false, nil, nil
	err := e.ended(reason) // the failure is read before another run can begin
	if group {
		e.group.pinner.Unpin()
		e.group.mu.Unlock()
	}
	runtime.KeepAlive(e)
	return err
}
