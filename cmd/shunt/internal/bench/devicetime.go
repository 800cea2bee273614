package bench

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Mode is how operations on a GPU are submitted.
type Mode string

// Modes.
const (
	Eager Mode = "eager" // one call after the other
	Graph Mode = "graph" // captured once, replayed
)

// Pinned words, at these places of deviceSpace.words.
const (
	gateWord = 0
	busyWord = 512
)

// limit bounds, in nanoseconds, how long a kernel of the benchmark waits for
// the host.
const limit = 20e9

// word is a pinned word, as the host sees it.
func (d *deviceSpace) word(offset uintptr) *uint64 {
	return (*uint64)(unsafe.Add(address(uint64(d.words.Address)), offset))
}

// batchOf is how many operations are timed together, and how often.
func (d *deviceSpace) batchOf(bytes int64) (operations, rounds int) {
	switch {
	case bytes <= 1<<20:
		operations, rounds = 40, 101
	case bytes <= 8<<20:
		operations, rounds = 20, 41
	case bytes <= 32<<20:
		operations, rounds = 10, 21
	case bytes <= 256<<20:
		operations, rounds = 4, 11
	default:
		operations, rounds = 2, 7
	}
	if d.iterations > 0 {
		operations = min(operations, d.iterations)
		rounds = d.iterations / operations
	}
	return operations, rounds
}

// warmUps are rounds whose times are not kept.
const warmUps = 3

// samples times the candidates in turn. All ranks go through the same rounds,
// which the sizes alone decide.
func (d *deviceSpace) samples(_ *rank, p *prepared, list []candidate) (_ int, err error) {
	operations, rounds := d.batchOf(p.most)
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
			if graphs[i], err = d.capture(&list[i], operations, len(p.slots)); err != nil {
				return 0, list[i].failed(p, err)
			}
		}
	}
	for round := -warmUps; round < rounds; round++ {
		if round == 0 && d.busy > 0 {
			// Behind the warm-up, in which allocations would wait for the filler.
			if err := d.fillUp(); err != nil {
				return 0, err
			}
		}
		for i := range list {
			us, err := d.timed(&list[i], graphs[i], operations, len(p.slots))
			if err != nil {
				return 0, errors.Join(list[i].failed(p, err), d.empty())
			}
			if round >= 0 {
				list[i].samples = append(list[i].samples, us)
			}
		}
	}
	return operations * rounds, d.empty()
}

// capture makes a graph of so many operations.
func (d *deviceSpace) capture(c *candidate, operations, slots int) (cuda.GraphExec, error) {
	if err := d.driver.BeginCapture(d.ctx, d.own); err != nil {
		return 0, err
	}
	var failed error
	for i := 0; i < operations && failed == nil; i++ {
		failed = c.call(i % slots)
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

// timed is the microseconds of one operation. The ranks meet first. Replays
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
		if err := d.launch(d.own, gateKernel, 1, 1, uint64(d.words.Device)+gateWord, d.opened, limit); err != nil {
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
		err = plugin.Errorf(plugin.Internal, "bench: %d operations took %g µs", operations, us)
	}
	return us / float64(operations), err
}

// open lets the stream pass the latest gate.
func (d *deviceSpace) open() { atomic.StoreUint64(d.word(gateWord), d.opened) }

// fillUp keeps multiprocessors busy with other work until empty.
func (d *deviceSpace) fillUp() error {
	atomic.StoreUint64(d.word(busyWord), 0)
	blocks := max(d.sms*d.busy/100, 1)
	return d.launch(d.side, busyKernel, uint32(blocks), 1024, uint64(d.words.Device)+busyWord, 1, limit, uint64(d.counter)+8)
}

// empty ends what fillUp began.
func (d *deviceSpace) empty() error {
	if d.busy == 0 {
		return nil
	}
	atomic.StoreUint64(d.word(busyWord), 1)
	return d.driver.SynchronizeStream(d.ctx, d.side)
}
