package host

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// alone lists the collectives whose plans are prepared when the communicator is made, because the ranks cannot agree on
// them later: groups of send and recv run as all_to_all_v. A rank without peers need not wait for any.
func (d *device) alone() []plugin.Collective {
	if d.comm.World() == 1 {
		return nil
	}
	return []plugin.Collective{plugin.Send, plugin.Recv, plugin.AllToAllV}
}

// runGroup enqueues operations that were checked, as one group: sends and
// receives together, everything else behind them in the order given.
func (d *device) runGroup(operations []Operation, calls []call.Call) error {
	c := d.comm
	stream := streamOf(operations[0].Stream)
	for i := range operations {
		if s := streamOf(operations[i].Stream); s != stream {
			return c.checker.Invalid(operations[i].Collective,
				"a group's operations are of one stream; this one is of %#x, the first of %#x", uint64(s), uint64(stream))
		}
	}
	d.rounds.Begin(c.World())
	var rest []*call.Call
	first := (*call.Call)(nil)
	for i := range calls {
		if err := d.inspect(&calls[i]); err != nil {
			return err
		}
		switch calls[i].Collective {
		case plugin.Send, plugin.Recv:
			if first == nil {
				first = &calls[i]
			}
			if c.endpoints.Buffers != nil {
				c.endpoints.Buffers.ValidateRanges(&calls[i])
			}
			d.rounds.Add(&calls[i])
		default:
			rest = append(rest, &calls[i])
		}
	}
	if _, _, err := call.ToSelf(c.Rank(), calls); err != nil {
		return err
	}
	if first != nil {
		c.endpoints.Buffers.TakeGroup(calls, false)
		if err := d.runRounds(first, stream); err != nil {
			return err
		}
		c.endpoints.Buffers.TakeGroup(calls, true)
		for i := range calls {
			d.countMessage(&calls[i])
		}
	}
	for _, call := range rest {
		program, err := c.programs(call)
		if err != nil {
			return err
		}
		a := executor.Arguments{Send: call.Send, Recv: call.Recv, Slots: call.Slots, Arrays: call.Arrays}
		if err := d.run(call, nil, &program, &a, stream); err != nil {
			return err
		}
	}
	return nil
}

// runRounds enqueues the rounds. first is their first message, for records.
func (d *device) runRounds(first *call.Call, stream cuda.Stream) error {
	c := d.comm
	round := call.Call{Collective: plugin.AllToAllV, DType: plugin.Uint8}
	p, err := c.programs(&round)
	if err != nil {
		return err
	}
	d.launches = d.launches[:0]
	for _, r := range d.rounds.All() {
		d.launches = append(d.launches, executor.DeviceLaunch{
			Program: p.Kernels, Arguments: executor.Arguments{Send: unsafe.Pointer(nil), Recv: unsafe.Pointer(nil),
				Arrays: r, Absolute: true},
		})
	}
	c.ledger.Publish(first)
	c.engine.Announce()
	if err := c.endpoints.MakeDeferred(c.job.Context, &p, d.rounds.Partners()); err != nil {
		return d.explain("group", err, stream)
	}
	d.Flights.Begin(c.ledger.Number, c.ledger.Collectives, first, p.Kernels.Title())
	if err = c.endpoints.Engines.BeforeRounds(p.Base, d.launches, stream); err == nil {
		err = d.Exec.RunBatch(d.launches, stream)
		c.endpoints.Engines.AfterRounds(p.Base, d.launches, stream)
	}
	d.Flights.Enqueued(c.ledger.Number, err != nil)
	if err != nil {
		return d.explain("group", err, stream)
	}
	return nil
}
