package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/internal/job"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/host/internal/survey"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/plugin"
)

// device is the part of a communicator that runs on its GPU. The CPU's engine
// beside it keeps the control pages.
type device struct {
	*job.GPU
	comm *Communicator
	exec *executor.Device

	copies *memory.Staging // the host's own

	starts   map[handleKey]cuda.Ptr // where what the endpoints' handles stand for begins
	flights  diagnosis.Flights
	rounds   call.Rounds // of a group's messages
	launches []executor.DeviceLaunch
	partner  [1]int            // of the operation that runs, if it has one
	late     diagnosis.Late    // which rank is behind; only the watch uses it
	buffers  *buffers.Registry // of users' buffers; nil without a transport that has one

	stop context.CancelFunc // ends the goroutines
	done sync.WaitGroup
}

// stagingBytes is the longest copy of the host's own: patterns of the probe, and zeroes for memory that is made.
const stagingBytes = 16 * survey.PatternBytes

// newDevice makes the executor of a communicator's GPU. It is local.
func newDevice(c *Communicator) (*device, error) {
	g := c.job.GPU
	exec, err := executor.NewDevice(g.Driver, g.Info.Ordinal, c.rank, c.world)
	if err != nil {
		return nil, err
	}
	exec.SetTimeout(c.observer.Timeout)
	c.plans.Device = exec
	d := &device{GPU: g, comm: c, exec: exec, flights: diagnosis.NewFlights(c.job.Options.Records()), stop: func() {},
		starts: map[handleKey]cuda.Ptr{}}
	if d.copies, err = memory.NewStaging(g.Driver, g.Context, stagingBytes); err != nil {
		return nil, errors.Join(err, exec.Close())
	}
	return d, nil
}

// probe finds out whether GPUs reach each other's memory. It is collective. The memory is the first region of each
// transport.
func (d *device) probe(ctx context.Context, id uint64) error {
	c := d.comm
	if c.world == 1 {
		return nil
	}
	gpus := survey.GPUs{
		Survey: &survey.Survey{Observer: &c.observer, Group: c.group}, Driver: d.Driver, Context: d.Context, Bus: d.Info.Bus,
		Copies: d.copies,
	}
	for i, a := range c.attached {
		regions := a.Endpoint.Regions()
		if len(regions) == 0 || regions[0].Memory != plugin.MemoryKindCuda || regions[0].Role == plugin.RegionRoleLocal ||
			regions[0].Bytes < gpus.ProbeBytes() {
			continue // alike on all ranks, as regions are
		}
		first := make([]cuda.Ptr, c.world)
		for rank := range first {
			first[rank] = a.mappings[rank].(deviceMapping).mapping.Address()
		}
		if err := gpus.Probe(ctx, fmt.Sprintf("probe the memory of peers (%s %d)", c.label, i), id, first); err != nil {
			return err
		}
	}
	return nil
}

// mapRegion maps a region of a rank and enters it in the executor's table. A
// directory is its owner's alone.
func (d *device) mapRegion(base uint32, r plugin.Region, rank int) (io.Closer, error) {
	if r.Role == plugin.RegionRoleDeferred || r.Role == plugin.RegionRoleDirectory && rank != d.comm.rank {
		return nil, nil
	}
	if r.Role == plugin.RegionRoleDirectory && r.Bytes < plugin.DirectoryBytes(d.comm.world) {
		return nil, plugin.Errorf(plugin.Protocol, "a directory of %d bytes for %d ranks, want %d", r.Bytes, d.comm.world,
			plugin.DirectoryBytes(d.comm.world))
	}
	key := handleKey{rank, r.Handle.Generation}
	if start, mapped := d.starts[key]; mapped && r.Role != plugin.RegionRoleBuffer {
		// A part of what another region maps: one address for one place.
		return nil, d.enter(base, r, rank, start+cuda.Ptr(r.Handle.Offset))
	}
	behind := int64(0)
	if r.ID == 0 && r.Role == plugin.RegionRolePrivate {
		behind = d.comm.attachedAt(base).deferredBytes()
	}
	m, err := memory.MapExtensible(d.Driver, d.Context, d.Info.Ordinal, r, behind)
	if err == nil {
		err = d.enter(base, r, rank, m.Address())
	}
	if err != nil {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
		return nil, err
	}
	if r.Role != plugin.RegionRoleBuffer {
		d.starts[key] = m.Address() - cuda.Ptr(r.Handle.Offset)
	}
	return deviceMapping{d, m}, nil
}

// localMapping is a region of role local. Its endpoint is closed once no operation and no graph can use it.
type localMapping struct {
	device  *device
	mapping io.Closer
	at      unsafe.Pointer
}

func (m localMapping) Close() error {
	return errors.Join(m.device.Driver.UnregisterHost(m.device.Context, m.at), m.mapping.Close())
}

// mapLocal maps memory of this rank's alone, the device's or the host's, and lets the GPU reach it.
func (d *device) mapLocal(base uint32, r plugin.Region) (io.Closer, error) {
	if r.Memory == plugin.MemoryKindCuda {
		m, err := memory.MapDevice(d.Driver, d.Context, d.Info.Ordinal, r)
		if err != nil {
			return nil, err
		}
		if err := d.exec.SetRegion(base, r.ID, d.comm.rank, m.Address(), r.Bytes); err != nil {
			return nil, errors.Join(err, m.Close())
		}
		return m, nil
	}
	local := localMapping{device: d}
	var err error
	local.mapping, err = mapHost(r, func(m executor.Memory) error {
		at, err := d.Driver.RegisterHost(d.Context, m.Base, r.Bytes)
		if err != nil {
			return err
		}
		if err = d.exec.SetLocal(base, r.ID, at, m.Base, r.Bytes); err != nil {
			return errors.Join(err, d.Driver.UnregisterHost(d.Context, m.Base))
		}
		local.at = m.Base
		return nil
	})
	if err != nil {
		return nil, err
	}
	return local, nil
}

// handleKey names what a rank has exported, of which regions are parts.
type handleKey struct {
	rank       int
	generation uint64
}

// enter puts a region into the executor's table.
func (d *device) enter(base uint32, r plugin.Region, rank int, address cuda.Ptr) error {
	if r.Role == plugin.RegionRoleDirectory && d.buffers == nil {
		d.buffers = buffers.New(&d.comm.observer, buffers.GPU{Driver: d.Driver, Context: d.Context, Ordinal: d.Info.Ordinal},
			d.exec, d.copies, d.comm.share, address)
	}
	return d.exec.SetRegion(base, r.ID, rank, address, r.Bytes)
}

// deviceMapping goes once no operation and no graph can use it any more.
type deviceMapping struct {
	device  *device
	mapping *memory.DeviceMapping
}

func (m deviceMapping) Close() error { return m.device.exec.Later(m.mapping.Close) }

// abort ends the kernels that wait, and rejects what comes.
func (d *device) abort() {
	if d != nil {
		d.exec.Abort()
	}
}

// halt ends the goroutines. Nothing of the communicator is released by it.
func (d *device) halt() {
	if d != nil {
		d.stop()
		d.done.Wait()
	}
}

// close lets go of the GPU, after the mappings were closed. What the host's copies use goes when this communicator's
// kernels have ended: destroying it before may wait for them, and they for what a peer calls next.
func (d *device) close() error {
	if d == nil {
		return nil
	}
	return errors.Join(d.exec.Later(d.copies.Close), d.exec.Close())
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
	if d.buffers != nil {
		d.buffers.Validate(call)
		if err := d.buffers.Current(call.Collective, r); err != nil {
			c.fail(&plugin.Error{Code: plugin.CodeOf(err), Rank: c.rank, Message: err.Error()}, true)
			return c.observer.Failed(diagnosis.Numbered(call.Collective, c.sequence.Collectives))
		}
	}
	a.PeerRecv = c.symmetric.PeerRecv(r, call.Slots[plugin.SlotOffset])
	c.publish(call)
	c.engine.Announce()
	if err := d.makeDeferred(program, d.partners(call)); err != nil {
		return d.explain(diagnosis.Numbered(call.Collective, c.sequence.Collectives), err, stream)
	}
	d.flights.Begin(c.sequence.Number, c.sequence.Collectives, call, program.Kernels.Title())
	err := c.engines.Before(program.Base, call, stream)
	if err == nil {
		err = d.exec.Run(program.Kernels, a, stream)
		c.engines.After(program.Base, call, stream)
	}
	d.flights.Enqueued(c.sequence.Number, err != nil)
	if err == nil {
		c.engine.NoteCall()
		d.buffers.TakeCaptured(call)
		d.countMessage(call)
	}
	if err != nil {
		return d.explain(diagnosis.Numbered(call.Collective, c.sequence.Collectives), err, stream)
	}
	return nil
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

// inspect rejects, where SHUNT_CHECK is on, memory that the GPU does not know: a
// kernel that touched it would break the context for good.
func (d *device) inspect(call *call.Call) error {
	if !d.comm.job.Checks {
		return nil
	}
	for _, side := range []struct {
		name  string
		at    unsafe.Pointer
		bytes int64
	}{{"send", call.Send, call.Slots[plugin.SlotSendBytes]}, {"recv", call.Recv, call.Slots[plugin.SlotRecvBytes]}} {
		if side.bytes == 0 {
			continue
		}
		p, err := d.Driver.Pointer(d.Context, cuda.Ptr(uintptr(side.at)))
		if err != nil {
			return err
		}
		if p.Kind == cuda.PointerUnknown {
			return plugin.Errorf(plugin.InvalidArgument, "%s on rank %d: %s memory %p is not the GPU's", call.Collective,
				d.comm.rank, side.name, side.at)
		}
	}
	if call.OnDevice {
		return d.inspectCounts(call)
	}
	return nil
}

// Collect frees what communicators on CUDA memory that were closed while a graph
// still used them had to keep, as far as those graphs are gone by now. Making and
// closing communicators does so too, for their own GPU.
func Collect() error { return executor.Collect() }
