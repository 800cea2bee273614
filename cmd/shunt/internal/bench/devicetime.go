package bench

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Mode is the way in which operations on a GPU are submitted.
type Mode string

// Modes.
const (
	Eager Mode = "eager" // one call after the other
	Graph Mode = "graph" // captured once, replayed
)

// limit bounds, in nanoseconds, how long a gate waits for the host.
const limit = 20e9

// word returns the gate's pinned word, as the host sees it.
func (d *deviceSpace) word() *uint64 { return (*uint64)(address(uint64(d.words.Address))) }

// batchOf returns how many operations are timed together, and how often; iterations
// is Config.Iterations. Beside other work a batch of short operations must last for
// many of that work's kernels, or its time depends on where in one of them it began.
func batchOf(bytes int64, iterations int, busy bool) (operations, rounds int) {
	switch {
	case bytes <= 1<<20 && busy:
		operations, rounds = 400, 101
	case bytes <= 1<<20:
		operations, rounds = 40, 101
	case bytes <= 8<<20:
		operations, rounds = 20, 41
	case bytes <= 32<<20:
		operations, rounds = 10, 21
	case bytes <= 256<<20:
		operations, rounds = 4, 11
	default:
		operations, rounds = 2, 9
	}
	if iterations > 0 {
		operations = min(operations, iterations)
		rounds = iterations / operations
	}
	return operations, rounds
}

// warmUps are rounds whose times are not kept.
const warmUps = 3

// samples times the candidates in turn, each round in an order of its own: what one leaves in caches then does not slow
// down the same one each time. All ranks go through the same rounds and orders, which the sizes alone decide.
func (d *deviceSpace) samples(_ *rank, p *prepared, list []candidate) (_ int, err error) {
	operations, rounds := batchOf(p.most, d.iterations, d.busy > 0)
	graphs := make([]cuda.GraphExec, len(list))
	defer func() {
		for _, x := range graphs {
			if x != 0 {
				err = errors.Join(err, d.driver.DestroyGraphExec(x))
			}
		}
	}()
	if p.job.mode == Graph {
		for i := range list {
			call := func(n int) error { return list[i].call(n % len(p.slots)) }
			if graphs[i], err = d.capture(operations, call); err != nil {
				return 0, list[i].failed(p, err)
			}
		}
	}
	idle := make([]float64, len(list)) // microseconds of a batch with nothing beside it
	orders := rand.New(rand.NewPCG(uint64(operations), uint64(rounds)))
	for round := -warmUps; round < rounds; round++ {
		for _, i := range orders.Perm(len(list)) {
			c := &list[i]
			// Behind the warm-up, in which allocations would wait for other work.
			beside := d.busy > 0 && round >= 0
			if beside {
				if err := d.occupy(idle[i], c.samples, operations); err != nil {
					return 0, err
				}
			}
			us, err := d.timed(c, graphs[i], operations, len(p.slots))
			if err != nil {
				return 0, c.failed(p, err)
			}
			if beside {
				covered, err := d.covered()
				if err != nil {
					return 0, c.failed(p, err)
				}
				if covered {
					c.covered++
				}
			}
			if round >= 0 {
				c.samples = append(c.samples, us)
			} else {
				idle[i] = us * float64(operations)
			}
		}
	}
	return operations * rounds, nil
}

// capture makes a graph of a number of calls.
func (d *deviceSpace) capture(calls int, call func(int) error) (cuda.GraphExec, error) {
	if err := d.driver.BeginCapture(d.ctx, d.own); err != nil {
		return 0, err
	}
	var failed error
	for i := 0; i < calls && failed == nil; i++ {
		failed = call(i)
	}
	g, err := d.driver.EndCapture(d.ctx, d.own)
	if failed != nil || err != nil {
		if g != 0 {
			_ = d.driver.DestroyGraph(g) // why the capture failed matters more
		}
		return 0, errors.Join(failed, err)
	}
	x, err := d.driver.Instantiate(d.ctx, g)
	return x, errors.Join(err, d.driver.DestroyGraph(g))
}

// timed returns the microseconds of one operation. The ranks meet first. Replays
// begin behind a gate, so that the time of submitting the graph is not in it;
// calls one by one take whatever is longer, the host's time or the GPU's.
func (d *deviceSpace) timed(c *candidate, x cuda.GraphExec, operations, slots int) (float64, error) {
	if x == 0 {
		if err := d.comm.Barrier(d.stream()); err != nil {
			return 0, err
		}
		if err := d.finish(); err != nil {
			return 0, err
		}
		if err := d.driver.Record(d.ctx, d.start, d.own); err != nil {
			return 0, err
		}
		for i := range operations {
			if err := c.call(i % slots); err != nil {
				return 0, err
			}
		}
	} else {
		d.opened++
		if err := d.launch(d.own, gateKernel, 1, 1, uint64(d.words.Device), d.opened, limit); err != nil {
			return 0, err
		}
		// Every gate opens when its own rank is ready; the barrier makes of that
		// one beginning.
		err := d.comm.Barrier(d.stream())
		if err == nil {
			err = d.driver.Record(d.ctx, d.start, d.own)
		}
		if err == nil {
			err = d.driver.LaunchGraph(d.ctx, x, d.own)
		}
		if err != nil {
			d.open()
			return 0, err
		}
	}
	err := d.driver.Record(d.ctx, d.stop, d.own)
	d.open()
	if err != nil {
		return 0, err
	}
	if err := d.finish(); err != nil {
		return 0, err
	}
	us, err := d.driver.Elapsed(d.ctx, d.start, d.stop)
	if err == nil && us <= 0 {
		err = plugin.Errorf(plugin.Internal, "bench: the driver returned %g µs for %d operations, want more than 0", us,
			operations)
	}
	return us / float64(operations), err
}

// open lets the stream pass the latest gate.
func (d *deviceSpace) open() { atomic.StoreUint64(d.word(), d.opened) }
