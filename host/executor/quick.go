package executor

/*
#include "engine.h"
*/
import "C"

import (
	"sync/atomic"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/executor/internal/stamp"
	"github.com/shunt-ccl/shunt/plugin"
)

// A crossing into C costs some 30 ns, and a plan that works out in each call
// what its slots mean some 30 more. For a few bytes that a peer has sent already
// that is most of the time. So a program that is run again and again with the same
// slots gets a short form, which runs in Go: what the slots decide is decided,
// addresses are looked up, and only those steps are left that touch memory. It
// runs where nothing has to be waited for. Where a wait is not true yet it has
// changed nothing, and Run does it all.
//
// What peers see is the same, word for word, so each rank may choose by itself.

// Quick is the short form of a program for certain slots.
type Quick struct {
	engine     *Engine
	tables     uint64 // version of the engine's tables when addresses were looked up
	steps      []quickStep
	send, recv bool           // memory is needed
	record     unsafe.Pointer // sx_record
	calls      unsafe.Pointer // sx_call, SX_CALLS of them
	marked     bool           // a word for marks stands behind each semaphore
	lines      uint64         // of a slot that it writes
}

// The steps of a short form. Waits come before all that have an effect.
const (
	quickLoad   = iota // register = word
	quickWait          // give up unless word has reached value
	quickCopy          // n bytes of from to word
	quickSignal        // word = value, and wake
	quickStore         // word = value
	quickSkip          // continue at step to where value is zero, or is not
)

type quickStep struct {
	code     uint8
	register uint8
	ifZero   bool
	to       uint8
	n        uintptr
	word     quickPlace
	from     quickPlace
	value    form
	wake     []*C.sx_control
	ahead    form // of a signal: where a later operation puts its own
}

// quickPlace is an address: at bytes behind base, which is a region's or null, or
// behind the caller's memory.
type quickPlace struct {
	space plugin.Space
	base  unsafe.Pointer
	at    form
}

// turnTicks is TURN of run.c.
const turnTicks = C.SX_TURN

// Try runs the operation if it need not wait: then it is done, well, and entered
// in the flight recorder as having ended when it began. Otherwise nothing has
// happened, and Run or RunFor is to be called; they also say why an engine that
// was aborted or whose regions have changed runs nothing. record is that of
// Record: {seq, what, how, count, number, mark}, which Try may change. send and recv
// are as in Arguments, as long as the slots said when the short form was made.
//
// As with Run only one goroutine at a time may run the engine, and it may be
// closed only afterwards: Close does not wait for Try.
func (q *Quick) Try(send, recv unsafe.Pointer, record *[6]uint64) bool {
	e := q.engine
	if q.tables != e.tables.Load() || atomic.LoadUint64((*uint64)(unsafe.Pointer(&e.c.abort))) != 0 {
		return false
	}
	if (q.send && send == nil) || (q.recv && recv == nil) || e.turnDue {
		e.turnDue = false
		return false
	}
	mark := uint64(0)
	if q.marked {
		mark = record[5]
	}
	var registers [quickRegisters]int64
	var next unsafe.Pointer
	for i := 0; i < len(q.steps); i++ {
		s := &q.steps[i]
		v := s.value.of(&registers)
		if s.code == quickSkip {
			if (v == 0) == s.ifZero {
				i = int(s.to) - 1
			}
			continue
		}
		base := s.word.base
		switch s.word.space {
		case plugin.SpaceSend:
			base = send
		case plugin.SpaceRecv:
			base = recv
		}
		word := unsafe.Add(base, s.word.at.of(&registers))
		switch s.code {
		case quickLoad:
			loaded := atomic.LoadInt64((*int64)(word))
			if uint64(loaded) > maxCounter {
				return false
			}
			registers[s.register%quickRegisters] = loaded
		case quickWait:
			// Acquires what the semaphore's writer wrote before.
			if atomic.LoadInt64((*int64)(word))-v < 0 {
				return false
			}
			if mark != 0 && *(*uint64)(unsafe.Add(word, 8)) != mark {
				return false // the long way knows what that means
			}
		case quickSignal:
			// Releases every earlier write of this rank to peers that acquire the value. It
			// is a fence too, between the semaphore and the look at sleeping flags; see
			// wait.c.
			if mark != 0 {
				*(*uint64)(unsafe.Add(word, 8)) = mark
			}
			atomic.StoreInt64((*int64)(word), v)
			// A slot to come, which its readers have looked at last time.
			next = unsafe.Add(base, s.ahead.of(&registers))
			for _, control := range s.wake {
				if atomic.LoadUint32((*uint32)(unsafe.Pointer(&control.sleeping))) != 0 {
					C.sx_doorbell(control)
				}
			}
		case quickStore:
			// Plain: only this rank reads the word, or a later signal releases it.
			*(*int64)(word) = v
		default: // quickCopy
			src := s.from.base
			switch s.from.space {
			case plugin.SpaceSend:
				src = send
			case plugin.SpaceRecv:
				src = recv
			}
			move(word, unsafe.Add(src, s.from.at.of(&registers)), s.n)
		}
	}
	lines := uint64(0)
	if next != nil {
		lines = q.lines
	}
	e.stamp(q, record, next, lines)
	return true
}

// move copies n > 0 bytes; the two may overlap.
func move(dst, src unsafe.Pointer, n uintptr) {
	switch {
	case dst == src:
	case n == 8:
		*(*uint64)(dst) = *(*uint64)(src)
	case n == 4:
		*(*uint32)(dst) = *(*uint32)(src)
	default:
		copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
	}
}

// stamp enters an operation in the control page and in the flight recorder. Every
// few milliseconds it has the next one go through C, which gives Go's scheduler a
// turn (turn.go) and tells peers which processor this thread is on.
func (e *Engine) stamp(q *Quick, values *[6]uint64, next unsafe.Pointer, lines uint64) {
	var flight, call unsafe.Pointer
	if mark := values[5]; mark != 0 {
		call = unsafe.Add(q.calls, uintptr(mark%C.SX_CALLS)*unsafe.Sizeof(C.sx_call{}))
	}
	if c := e.c; c.count_flights > 0 {
		flight = unsafe.Add(unsafe.Pointer(c.flights), uintptr(c.next_flight)*unsafe.Sizeof(C.sx_flight{}))
		if c.next_flight++; c.next_flight == c.count_flights {
			c.next_flight = 0
		}
	}
	if now := stamp.Write(q.record, flight, call, unsafe.Pointer(values), next, lines); now-uint64(e.c.turn) >= turnTicks {
		e.turnDue = true
	}
}

// Stale reports whether regions or control pages have changed since the short form
// was made: then it never runs again.
func (q *Quick) Stale() bool { return q.tables != q.engine.tables.Load() }
