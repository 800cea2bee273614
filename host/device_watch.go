package host

import (
	"context"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// start begins what runs beside the operations, once the communicator is whole.
func (d *device) start() {
	ctx, stop := context.WithCancel(d.comm.job.ctx)
	d.stop = stop
	d.done.Go(func() { d.watch(ctx) })
	if d.buffers != nil {
		d.done.Go(func() { d.buffers.Keep(ctx) })
	}
}

// lookout is how long a kernel's fault may go unseen while nobody calls. Who asks
// for the communicator's error without a call, as a framework's watchdog does,
// learns of it so late at most, whatever SHUNT_STALL_WARNING says.
const lookout = 250 * time.Millisecond

// watch looks until the communicator is closed.
func (d *device) watch(ctx context.Context) {
	ticker := time.NewTicker(lookout)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			d.look()
		}
	}
}

// look finds faults that kernels have reported, and ranks that contradict each
// other. It runs every now and then, and wherever somebody is about to rely on a
// result. It calls no driver.
func (d *device) look() {
	kind, peer, _ := d.exec.Fault()
	if kind != plugin.FaultNone && d.comm.observer.Failure.Reason() == nil {
		d.comm.fail(d.comm.observer.Fault(kind, peer, d.exec.Compared, &d.flights), true)
	}
}

// contradictions fails the communicator if a peer has enqueued another operation
// than this rank in the same place.
func (d *device) contradictions() {
	if reason := d.comm.observer.Conflict(); reason != nil {
		d.comm.fail(reason, true)
	}
}

// Synchronize waits until everything in a stream has ended, and returns the
// communicator's error if it has failed by then: operations that were aborted
// end too, and leave nothing useful behind. For host memory, whose operations
// have ended when they return, it waits for nothing.
func (c *Communicator) Synchronize(stream Stream) error {
	if d := c.device; d != nil {
		if err := d.driver.SynchronizeStream(d.context, streamOf(stream)); err != nil {
			return c.observer.WrapError("synchronize", err)
		}
		d.look()
	}
	return c.observer.Failed("synchronize")
}

// graceful is how long operations in flight may still take after a failure that
// does not concern them: the plugin's process is gone, but not what it made.
const graceful = 2 * time.Second

// abortDevice ends the GPU's operations: at once, but after the loss of a plugin
// only those that have not ended by themselves within a while.
func (c *Communicator) abortDevice(reason *plugin.Error) {
	if c.device == nil {
		return
	}
	if reason.Code != plugin.PluginDied {
		c.device.abort()
		return
	}
	time.AfterFunc(graceful, c.device.abort)
}

// DeviceBytes is the device memory that the communicator's transports hold on
// this rank's GPU, windows not included; 0 for host memory.
func (c *Communicator) DeviceBytes() int64 {
	var total int64
	for _, a := range c.attached {
		for _, r := range a.Endpoint.Regions() {
			if r.Memory == plugin.MemoryKindCuda && r.Role != plugin.RegionRoleDirectory { // which lies in another region
				total += r.Handle.Bytes
			}
		}
	}
	return total
}
