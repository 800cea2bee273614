package bench

import (
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Estimate is about how long a run on GPUs takes, from the beginning of its
// processes to their end; 0 for host memory, where Budget tells. It knows of
// GPUs only what matters: links of some 300 GB/s, a few microseconds for a small
// operation, and what it costs to start.
func (c *Config) Estimate() time.Duration {
	if c.Memory != plugin.MemoryKindCuda {
		return 0
	}
	const (
		start     = 2.5e6 // µs: processes, CUDA, a communicator, buffers
		another   = 1e6   // a rival's communicator and memory
		operation = 5.0   // of a small one
		bandwidth = 250e3 // bytes a µs, of NCCL's and ours
		meeting   = 100.0 // the barrier and calls around a batch
		check     = 400.0 // filling, running and counting once
		memory    = 500e3 // bytes a µs, when filling and counting
	)
	us := start + another*float64(len(c.Rivals()))
	candidates := float64(1 + len(c.Rivals()))
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
		us += candidates * (timing + slots*(check+4*float64(bytes)/memory))
	}
	return time.Duration(us * 1e3).Round(time.Second)
}
