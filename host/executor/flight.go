package executor

/*
#include "engine.h"
*/
import "C"

import (
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// Flight is one operation of this rank in the flight recorder.
type Flight struct {
	Number     uint64 // of the operation on this rank, from 1
	Collective plugin.Collective
	DType      plugin.DType
	Op         plugin.Op
	Count      int64
	Root       int
	Symmetric  bool          // its receive memory is registered as symmetric
	OnDevice   bool          // its counts
	Begin      time.Duration // since the engine was made
	End        time.Duration // 0: still running
	Failed     bool          // ended, and not well
	Enqueued   bool          // what ended is only the putting into a stream
	Seq        uint64        // on a GPU: its number among the collectives, 0 for others
	Plan       string        // on a GPU: what it runs, see DeviceProgram.Title
}

// maxFlights bounds the recorder's memory.
const maxFlights = 1 << 20

// SetFlights makes the recorder keep the last n operations; 0 turns it off. It
// is called before the first Run.
func (e *Engine) SetFlights(n int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n < 0 || n > maxFlights || e.closed {
		return e.refuse(plugin.InvalidArgument, "a flight recorder cannot keep %d operations", n)
	}
	if n > 0 && C.sx_flights_set(e.c, C.uint32_t(n)) != 0 {
		return e.refuse(plugin.OutOfMemory, "cannot allocate memory for a flight recorder of %d operations", n)
	}
	e.ticks, e.made = uint64(C.sx_ticks()), time.Now()
	return nil
}

// Flights returns the recorded operations, oldest first.
func (e *Engine) Flights() []Flight {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed || e.c.count_flights == 0 {
		return nil
	}
	// Two readings of both clocks say how long a tick is.
	ticks, elapsed := uint64(C.sx_ticks())-e.ticks, time.Since(e.made)
	since := func(t uint64) time.Duration {
		if ticks == 0 {
			return 0
		}
		return time.Duration(float64(t-e.ticks) / float64(ticks) * float64(elapsed))
	}
	load := func(field unsafe.Pointer) uint64 { return atomic.LoadUint64((*uint64)(field)) }
	var flights []Flight
	for i := range e.c.count_flights {
		f := (*C.sx_flight)(unsafe.Add(unsafe.Pointer(e.c.flights), uintptr(i)*unsafe.Sizeof(C.sx_flight{})))
		number := load(unsafe.Pointer(&f.number))
		what, how := load(unsafe.Pointer(&f.what)), load(unsafe.Pointer(&f.how))
		count, begin := load(unsafe.Pointer(&f.count)), load(unsafe.Pointer(&f.begin))
		end, reason := load(unsafe.Pointer(&f.end)), load(unsafe.Pointer(&f.reason))
		if number == 0 || number != load(unsafe.Pointer(&f.number)) {
			continue // empty, or being overwritten
		}
		flight := Flight{
			Number: number, Collective: plugin.Collective(uint32(what)), DType: plugin.DType(what >> 32),
			Op: plugin.Op(uint32(how)), Root: int(int32(how >> 32)), Count: int64(count), Begin: since(begin),
		}
		if end != 0 {
			flight.End, flight.Failed = since(end), reason != C.SX_FINE
		}
		flights = append(flights, flight)
	}
	slices.SortFunc(flights, func(a, b Flight) int { return int(int64(a.Number - b.Number)) })
	return flights
}
