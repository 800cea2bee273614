package executor

// #include "engine.h"
import "C"

import (
	"os"
	"runtime"
	"sync"
)

// Go's monitor thread looks after goroutines that keep their processor for 10
// ms, and after calls into C that outlast two of its looks. A communicator in a
// loop looks like both, and then the monitor wakes every 20 µs to take the
// processor away from it. Where it runs on that same processor, because the
// process is bound to one, this made an all_gather of 512 KiB take 20 µs instead
// of 15. The two functions below keep it asleep.

// ended is what a run answers. Now and then it gives Go's scheduler a turn, so
// that the goroutine never holds its processor for as long as the monitor minds.
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

var spare sync.Once

// spareProcessor makes Go's runtime use at least two processors, unless the
// variable GOMAXPROCS says otherwise: where one is idle, the monitor leaves a
// call into C of less than 10 ms alone. A process bound to one CPU would have
// one, and pay some 5 µs for every 50 µs in C. What is done once stays.
func spareProcessor() {
	spare.Do(func() {
		if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) == 1 {
			runtime.GOMAXPROCS(2)
		}
	})
}
