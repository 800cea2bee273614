package bench

import (
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Estimate returns about how long a run on GPUs takes, from the beginning of its
// processes to their end; 0 for host memory, where Budget tells.
func (c *Config) Estimate() time.Duration {
	if c.Memory != plugin.MemoryKindCuda {
		return 0
	}
	rivals := len(c.Rivals())
	return c.estimate(rivals, func(job) int { return 1 + rivals })
}

// EstimateTune returns about how long it takes to measure the algorithms in the
// choices, if none of them is given up.
func (c *Config) EstimateTune(choices []Choice) time.Duration {
	type size struct {
		collective string
		message    int64
	}
	usable, names := map[size]int{}, map[string]bool{}
	for _, a := range choices {
		usable[size{a.Collective, a.Message}] = len(a.Plain.Usable) + len(a.only())
		for _, name := range append(a.only(), a.Plain.Usable...) {
			names[name] = true
		}
	}
	more := 0
	if c.Regret {
		more = 1 + len(c.Rivals())
	}
	candidates := func(j job) int { return usable[size{j.test.name, c.message(j)}] + more }
	if c.Memory == plugin.MemoryKindCuda {
		return c.estimate(len(names)+more, candidates)
	}
	const (
		start = 3e5 // µs: processes and communicators
		runs  = 12  // operations at least: checked, calibrating, timed
		bytes = 4e3 // a µs, of an operation among ranks that share a processor
		check = 5e2 // bytes a µs, when filling and checking twice
	)
	us := float64(start)
	for _, j := range c.jobs() {
		s := j.test.shape(place{c.World, c.Root, c.Root}, j.elements)
		length := float64(s.elements * c.DType.Bytes())
		us += float64(candidates(j)) * (max(1.3*float64(c.Budget.Microseconds()), runs*length/bytes) + length/check)
	}
	return time.Duration(us * 1e3).Round(time.Second)
}

// estimate knows of GPUs only what matters: links of some 300 GB/s, a few
// microseconds for a small operation, and what it costs to start.
func (c *Config) estimate(others int, candidates func(job) int) time.Duration {
	const (
		start     = 2.5e6 // µs: processes, CUDA, a communicator, buffers
		another   = 1e6   // a further communicator and memory
		operation = 5.0   // of a small one
		bandwidth = 250e3 // bytes a µs, of NCCL's and ours
		meeting   = 100.0 // the barrier and calls around a batch
		check     = 400.0 // filling, running and counting once
		memory    = 500e3 // bytes a µs, when filling and counting
	)
	us := start + another*float64(others)
	for _, j := range c.jobs() {
		s := j.test.shape(place{world: c.World, rank: c.Root, root: c.Root}, j.elements)
		bytes := s.elements * c.DType.Bytes()
		operations, rounds := batchOf(bytes, c.Iterations, c.Busy > 0)
		one := operation + float64(bytes)*max(j.test.bus(float64(c.World)), 0.5)/bandwidth
		batches := float64(rounds + warmUps)
		timing := batches * (float64(operations)*one + meeting)
		if c.Busy > 0 {
			timing += batches * (queueAhead + float64(operations)*one)
		}
		slots := float64(min(max(rotated/max(bytes, 1), 2), maxSlots))
		us += float64(candidates(j)) * (timing + slots*(check+4*float64(bytes)/memory))
	}
	return time.Duration(us * 1e3).Round(time.Second)
}
