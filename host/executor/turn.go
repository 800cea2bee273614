package executor

// #include "engine.h"
import "C"

import "runtime"

// Go's monitor thread looks after goroutines that keep their processor for 10
// ms, and after calls into C that outlast two of its looks. A communicator in a
// loop looks like both, and then the monitor wakes every 20 µs to take the
// processor away from it. Where it runs on that same processor, because the
// process is bound to one, this made an all_gather of 512 KiB take 20 µs instead
// of 15. What follows keeps it asleep in loops, and a second processor, which
// package processors gives to libshunt and the command, in calls into C.

// ended returns the error of a run. Now and then it gives Go's scheduler a turn, so that the goroutine never holds its
// processor long enough for the monitor to preempt it.
func (e *Engine) ended(reason C.uint32_t) error {
	switch reason {
	case C.SX_FINE:
		return nil
	case C.SX_FINE_TURN:
		runtime.Gosched()
		return nil
	}
	return e.failure(reason)
}
