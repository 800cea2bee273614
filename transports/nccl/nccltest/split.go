package nccltest

// #include <stdint.h>
import "C"

// goSplit makes the child that operations go to: another name of its parent, whose resources and flag of abort it
// shares.
//
//export goSplit
func goSplit(parent C.uint64_t, comm *C.uint64_t) C.int {
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
	c.handles, c.child, c.splitting = 2, machine.next, true
	*comm = C.uint64_t(machine.next)
	return 7
}
