package host

import (
	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/endpoints"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/plugin"
)

// device is the part of a communicator that runs on its GPU. The CPU's engine
// beside it keeps the control pages.
type device struct {
	*endpoints.GPU
	comm *Communicator

	rounds   call.Rounds // of a group's messages
	launches []executor.DeviceLaunch
	partner  [1]int // of the operation that runs, if it has one
}

// pastCalls is the number of collectives that a rank remembers: streams take some thousand pieces of work before they
// block, so that it may be as far ahead of its peers.
const pastCalls = 4096

// newDevice is local.
func newDevice(c *Communicator) (*device, error) {
	g := c.job.GPU
	gpu, err := endpoints.NewGPU(g.Driver, g.Context, g.Info, c.Rank(), c.World(), c.job.Options.Records())
	if err != nil {
		return nil, err
	}
	gpu.Exec.SetTimeout(c.observer.Timeout())
	if c.World() > 1 {
		c.engine.RememberCalls(pastCalls)
	}
	c.endpoints.GPU, c.plans.Device = gpu, gpu.Exec
	return &device{GPU: gpu, comm: c}, nil
}

// streamOf returns an operation's stream; nil is the default stream.
func streamOf(s Stream) cuda.Stream {
	if s == nil {
		return 0
	}
	return cuda.Stream(uintptr(s.Handle()))
}

// run enqueues one operation that was checked and inspected. The caller is admitted.
func (d *device) run(call *call.Call, r *buffers.Range, program *plans.Program, a *executor.Arguments,
	stream cuda.Stream) error {
	c := d.comm
	registry := c.endpoints.Buffers
	if registry != nil {
		registry.Validate(call)
		if err := registry.Current(call.Collective, r); err != nil {
			c.fail(&plugin.Error{Code: plugin.CodeOf(err), Rank: c.Rank(), Message: err.Error()}, true)
			return c.observer.Failed(c.ledger.Name(call.Collective))
		}
	}
	a.PeerRecv = c.endpoints.Symmetric.PeerRecv(r, call.Slots[plugin.SlotOffset])
	c.ledger.Publish(call)
	c.engine.Announce()
	if err := c.endpoints.MakeDeferred(c.job.Context, program, d.partners(call)); err != nil {
		return d.explain(c.ledger.Name(call.Collective), err, stream)
	}
	d.Flights.Begin(c.ledger.Number, c.ledger.Collectives, call, program.Kernels.Title())
	err := c.endpoints.Engines.Before(program.Base, call, stream)
	if err == nil {
		err = d.Exec.Run(program.Kernels, a, stream)
		c.endpoints.Engines.After(program.Base, call, stream)
	}
	d.Flights.Enqueued(c.ledger.Number, err != nil)
	if err == nil {
		c.engine.NoteCall()
		registry.TakeCaptured(call)
		d.countMessage(call)
	}
	if err != nil {
		return d.explain(c.ledger.Name(call.Collective), err, stream)
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
	if messages, _ := d.comm.ledger.Messages(call); messages != nil && call.Root != d.comm.Rank() {
		messages.Enqueued(d.Exec.Capturing())
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
	return d.Inspect(d.comm.Rank(), call)
}

// Synchronize waits until everything in a stream has ended, and returns the communicator's error if it has failed by
// then: operations that were aborted end too, and leave nothing useful behind. For host memory, whose operations have
// ended when they return, it waits for nothing.
func (c *Communicator) Synchronize(stream Stream) error {
	if err := c.closed("synchronize"); err != nil {
		return err
	}
	if d := c.device; d != nil {
		if err := d.Driver.SynchronizeStream(d.Context, streamOf(stream)); err != nil {
			return c.observer.WrapError("synchronize", err)
		}
		c.endpoints.Look()
		// What the kernels waited for, the peers had said before they launched theirs.
		c.compareCalls()
		c.failFor(c.observer.Conflict())
	}
	return c.observer.Failed("synchronize")
}

// DeviceBytes returns the device memory that the communicator's transports hold on this rank's GPU, windows not
// included; 0 for host memory, and once the communicator is closed.
func (c *Communicator) DeviceBytes() int64 {
	if c.device == nil || c.turn.Wait("device bytes") != nil {
		return 0
	}
	defer c.turn.Leave()
	return c.endpoints.DeviceBytes()
}

// Collect frees what communicators on CUDA memory that were closed while a graph
// still used them had to keep, as far as those graphs are gone by now. Making and
// closing communicators does so too, for their own GPU.
func Collect() error { return executor.Collect() }
