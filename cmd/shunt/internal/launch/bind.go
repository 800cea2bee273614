package launch

import (
	"errors"

	"golang.org/x/sys/unix"
)

// cpuOf is the CPU that a rank is bound to, or -1.
func (j Job) cpuOf(rank int) int {
	var allowed unix.CPUSet
	if !j.Bind || unix.SchedGetaffinity(0, &allowed) != nil || allowed.Count() < j.World {
		return -1
	}
	for cpu := 0; ; cpu++ {
		if allowed.IsSet(cpu) {
			if rank == 0 {
				return cpu
			}
			rank--
		}
	}
}

// onCPU calls start with this thread on one CPU, which what it starts inherits;
// -1 leaves the thread where it is. The thread must be the caller's alone.
func onCPU(cpu int, start func() error) error {
	if cpu < 0 {
		return start()
	}
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return start() // no binding is better than no rank
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return start() // likewise
	}
	return errors.Join(start(), unix.SchedSetaffinity(0, &before))
}
