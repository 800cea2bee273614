package launch

import (
	"os"
	"strconv"

	"github.com/shunt-ccl/shunt/internal/affinity"
)

// cpuOf returns the CPU that a rank is bound to, or -1: a core of its own where there
// are enough.
func (j Job) cpuOf(rank int) int {
	if !j.Bind {
		return -1
	}
	allowed, _ := affinity.Get()
	cpus := inOrder(allowed, coreOf)
	if len(cpus) < j.World {
		return -1
	}
	return cpus[rank]
}

// CPUs returns the number of CPUs that this process may use, and of their cores.
func CPUs() (cpus, cores int) {
	all, _ := affinity.Get()
	seen := map[string]bool{}
	for _, cpu := range all {
		seen[coreOf(cpu)] = true
	}
	return len(all), len(seen)
}

// inOrder puts the first CPU of every core in front of the second ones, and so
// on.
func inOrder(cpus []int, coreOf func(cpu int) string) []int {
	var rounds [][]int
	threads := map[string]int{} // seen of a core
	for _, cpu := range cpus {
		core := coreOf(cpu)
		nth := threads[core]
		threads[core]++
		if nth == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[nth] = append(rounds[nth], cpu)
	}
	var order []int
	for _, round := range rounds {
		order = append(order, round...)
	}
	return order
}

// coreOf names the core that a CPU belongs to; where the kernel does not say, each
// is its own.
func coreOf(cpu int) string {
	name := "/sys/devices/system/cpu/cpu" + strconv.Itoa(cpu) + "/topology/thread_siblings_list"
	if text, err := os.ReadFile(name); err == nil && len(text) > 1 {
		return string(text)
	}
	return strconv.Itoa(cpu)
}

// onCPU calls start with this thread on one CPU, which what it starts inherits;
// -1 leaves the thread where it is. The thread must be the caller's alone.
func onCPU(cpu int, start func() error) error {
	if cpu < 0 {
		return start()
	}
	before, err := affinity.Get()
	if err != nil {
		return start() // no binding is better than no rank
	}
	if err := affinity.Set([]int{cpu}); err != nil {
		return start() // likewise
	}
	err = start()
	// Where the former CPUs are gone this fails; what was started runs nevertheless.
	_ = affinity.Set(before)
	return err
}
