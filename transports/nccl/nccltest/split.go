package nccltest

// #include <stdint.h>
import "C"

import "github.com/shunt-ccl/shunt/cuda/cudatest"

// goSplit makes the child that operations go to: another name of its parent, whose resources and flag of abort it
// shares.
//
//export goSplit
func goSplit(parent C.uint64_t, maxCTAs C.int, comm *C.uint64_t) C.int {
	if state := goState(parent); state != 0 {
		return state
	}
	machine.Lock()
	defer machine.Unlock()
	c := machine.comms[uint64(parent)]
	if c.child != 0 {
		violate("rank %d: split twice", c.rank)
	}
	machine.next++
	machine.comms[machine.next] = c
	machine.budgets = append(machine.budgets, int(maxCTAs))
	c.current("split")
	c.handles, c.child, c.busy = 2, machine.next, true
	*comm = C.uint64_t(machine.next)
	return 7
}

// current notes a violation unless the device's context is current on the calling thread. Where none is, the runtime
// in NCCL takes device 0 for the thread's, sets it again before it returns, and so makes a context there. machine's
// lock is held.
func (c *communicator) current(when string) {
	if cudatest.Current() != c.driver {
		violate("rank %d: no context is current on the thread when its communicator is %s", c.rank, when)
	}
}
