// Package affinity reads and sets the CPUs that a thread may run on. The masks of golang.org/x/sys/unix and of glibc's
// cpu_set_t have 1,024 CPUs; on machines where more are possible, Linux refuses to fill them.
package affinity

import (
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"
)

// most is the number of CPUs of a mask. Linux has at most 8,192; Go's runtime reads as many as this.
const most = 1 << 16

type mask [most / bits.UintSize]uint

// Get returns the CPUs that this thread may run on, ascending.
func Get() ([]int, error) {
	var m mask
	if err := call(unix.SYS_SCHED_GETAFFINITY, &m); err != nil {
		return nil, err
	}
	return m.cpus(), nil
}

// Set binds this thread to CPUs. It leaves out those that the machine does not have, and fails if that is all.
func Set(cpus []int) error {
	m := maskOf(cpus)
	return call(unix.SYS_SCHED_SETAFFINITY, &m)
}

func call(number uintptr, m *mask) error {
	if _, _, failed := unix.RawSyscall(number, 0, unsafe.Sizeof(*m), uintptr(unsafe.Pointer(m))); failed != 0 {
		return failed
	}
	return nil
}

func (m *mask) cpus() (cpus []int) {
	for i, word := range m {
		for ; word != 0; word &= word - 1 {
			cpus = append(cpus, i*bits.UintSize+bits.TrailingZeros(word))
		}
	}
	return cpus
}

func maskOf(cpus []int) (m mask) {
	for _, cpu := range cpus {
		m[cpu/bits.UintSize] |= 1 << (cpu % bits.UintSize)
	}
	return m
}
