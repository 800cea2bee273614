package host

import (
	"context"
	"sync"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/internal/endpoints"
	"github.com/shunt-ccl/shunt/host/internal/job"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/plugin"
)

// device is the part of a communicator that runs on its GPU. The CPU's engine
// beside it keeps the control pages.
type device struct {
	*job.GPU
	comm *Communicator
	exec *executor.Device

	flights  diagnosis.Flights
	rounds   call.Rounds // of a group's messages
	launches []executor.DeviceLaunch
	partner  [1]int         // of the operation that runs, if it has one
	late     diagnosis.Late // which rank is behind; only the watch uses it

	stop context.CancelFunc // ends the goroutines
	done sync.WaitGroup
}

// newDevice is local.
func newDevice(c *Communicator) (*device, error) {
	g := c.job.GPU
	gpu, err := endpoints.NewGPU(g.Driver, g.Context, g.Info, c.rank, c.world)
	if err != nil {
		return nil, err
	}
	gpu.Exec.SetTimeout(c.observer.Timeout)
	c.endpoints.GPU, c.plans.Device = gpu, gpu.Exec
	return &device{GPU: g, comm: c, exec: gpu.Exec, flights: diagnosis.NewFlights(c.job.Options.Records()),
		stop: func() {}}, nil
}

// halt ends the goroutines. Nothing of the communicator is released by it.
func (d *device) halt() {
	if d != nil {
		d.stop()
		d.done.Wait()
	}
}

// streamOf returns an operation's stream; nil is the default stream.
func streamOf(s Stream) cuda.Stream {
	if s == nil {
		return 0
	}
	return cuda.Stream(uintptr(s.Handle()))
}

// run enqueues one operation that was checked and inspected. The caller is admitted.
func (d *device) run(call *call.Call, r *buffers.Range, program plans.Program, a *executor.Arguments,
	stream cuda.Stream) error {
	c := d.comm
	registry := c.endpoints.Buffers
	if registry != nil {
		registry.Validate(call)
		if err := registry.Current(call.Collective, r); err != nil {
			c.fail(&plugin.Error{Code: plugin.CodeOf(err), Rank: c.rank, Message: err.Error()}, true)
			return c.observer.Failed(diagnosis.Numbered(call.Collective, c.sequence.Collectives))
		}
	}
	a.PeerRecv = c.symmetric.PeerRecv(r, call.Slots[plugin.SlotOffset])
	c.publish(call)
	c.engine.Announce()
	if err := c.endpoints.MakeDeferred(c.job.Context, program, d.partners(call)); err != nil {
		return d.explain(diagnosis.Numbered(call.Collective, c.sequence.Collectives), err, stream)
	}
	d.flights.Begin(c.sequence.Number, c.sequence.Collectives, call, program.Kernels.Title())
	err := c.endpoints.Engines.Before(program.Base, call, stream)
	if err == nil {
		err = d.exec.Run(program.Kernels, a, stream)
		c.endpoints.Engines.After(program.Base, call, stream)
	}
	d.flights.Enqueued(c.sequence.Number, err != nil)
	if err == nil {
		c.engine.NoteCall()
		registry.TakeCaptured(call)
		d.countMessage(call)
	}
	if err != nil {
		return d.explain(diagnosis.Numbered(call.Collective, c.sequence.Collectives), err, stream)
	}
	return nil
}

// partners returns the peers that an operation is with, or nil if it is with all ranks.
func (d *device) partners(call *call.Call) []int {
	if !call.Collective.PointToPoint() {
		return nil
	}
	d.partner[0] = call.Root
	return d.partner[:]
}

// countMessage notes a message that was enqueued, so that its receiver can tell that one will not come.
func (d *device) countMessage(call *call.Call) {
	if messages, _ := d.comm.messages(call); messages != nil && call.Root != d.comm.rank {
		messages.Enqueued(d.exec.Capturing())
	}
}

// explain turns a failure to enqueue into an error: the end of the communicator, as
// peers will wait for the operation; but nothing to it where the stream was being
// captured, as then only a graph is not to be had.
func (d *device) explain(what string, err error, stream cuda.Stream) error {
	state, asked := d.Driver.CaptureInfo(d.Context, stream)
	if asked == nil && state.Status != cuda.CaptureNone && d.comm.observer.Failure.Reason() == nil {
		return d.comm.observer.WrapError(what, err)
	}
	return d.comm.failRun(what, err)
}

// inspect rejects, where SHUNT_CHECK is on, memory that the GPU does not know.
func (d *device) inspect(call *call.Call) error {
	if !d.comm.job.Checks {
		return nil
	}
	return d.comm.endpoints.GPU.Inspect(d.comm.rank, call)
}

// Collect frees what communicators on CUDA memory that were closed while a graph
// still used them had to keep, as far as those graphs are gone by now. Making and
// closing communicators does so too, for their own GPU.
func Collect() error { return executor.Collect() }
