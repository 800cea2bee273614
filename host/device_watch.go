package host

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/host/internal/endpoints"
	"github.com/shunt-ccl/shunt/host/internal/job"
	"github.com/shunt-ccl/shunt/plugin"
)

// start begins what runs beside the operations, once the communicator is whole.
func (d *device) start() {
	ctx, stop := context.WithCancel(d.comm.job.Context)
	d.stop = stop
	d.done.Go(func() { d.watch(ctx) })
	if registry := d.comm.endpoints.Buffers; registry != nil {
		d.done.Go(func() { registry.Keep(ctx) })
	}
	if engines := d.comm.endpoints.Engines; engines != nil {
		d.done.Go(func() { engines.Keep(ctx) })
	}
}

// watch looks until the communicator is closed.
func (d *device) watch(ctx context.Context) {
	ticker := time.NewTicker(job.Lookout)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			d.look()
			d.check()
			d.findLate(time.Now())
		}
	}
}

// look finds faults that kernels have reported, and ranks that contradict each other. It runs every now and then, and
// wherever somebody is about to rely on a result. It calls no driver.
func (d *device) look() {
	kind, peer, _ := d.exec.Fault()
	if kind == plugin.FaultNone || d.comm.observer.Failure.Reason() != nil {
		return
	}
	if kind == plugin.FaultEngine {
		d.lookAtEngine()
	} else {
		d.comm.fail(d.comm.observer.Fault(kind, peer, d.exec.Compared, &d.flights), true)
	}
}

// outlive has what still runs when the communicator is closed looked at once it has ended: nobody else would say that
// it has failed. What is known by the end of Close, known returns; what comes later is logged.
func (d *device) outlive() (known func() error, err error) {
	if d == nil {
		return func() error { return nil }, nil
	}
	var failed atomic.Pointer[plugin.Error]
	o, exec := &d.comm.observer, d.exec
	look := sync.OnceFunc(func() {
		kind, peer, _ := exec.Fault()
		if kind == plugin.FaultNone || o.Failure.Reason() != nil {
			return
		}
		reason := o.FaultOnceClosed(kind, peer)
		o.Logger.Error("operations of a closed communicator have failed, and their results are not there", "communicator",
			o.Label, "rank", o.Rank, "reason", reason.Message)
		failed.Store(reason)
	})
	err = exec.Later(func() error { look(); return nil }) // before what it looks at goes
	return func() error {
		if !exec.Idle() {
			go func() {
				for !exec.Idle() {
					time.Sleep(job.Lookout)
				}
				look()
			}()
		}
		if reason := failed.Load(); reason != nil {
			return reason
		}
		return nil
	}, err
}

// lookAtEngine fails the communicator as one of its engine steps has failed.
func (d *device) lookAtEngine() {
	c := d.comm
	f, base := d.exec.EngineFailure()
	if f == nil {
		c.fail(&plugin.Error{Code: plugin.Timeout, Rank: c.rank, Message: fmt.Sprintf("the proxy of engine steps on rank %d has not answered a kernel for %v: native code of a transport blocks in start or poll", c.rank, c.observer.Timeout)}, true)
		return
	}
	// Who ends a peer knows better why than who has lost its connection.
	for end := time.Now().Add(time.Second); f.Code == plugin.PeerDied && time.Now().Before(end); {
		if c.observer.Failure.Reason() != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	reason := &plugin.Error{Code: f.Code, Rank: c.rank}
	if f.Rank >= 0 {
		reason.Rank = f.Rank
	}
	for _, e := range c.endpoints.List {
		if e.Base == base {
			reason.Message = fmt.Sprintf("transport %s on rank %d: %s", e.Name, c.rank, f.Reason)
		}
	}
	c.fail(reason, true)
}

// check finds what has failed in the transports between calls.
func (d *device) check() {
	for _, e := range d.comm.endpoints.List {
		if err := e.Check(); err != nil && d.comm.observer.Failure.Reason() == nil {
			d.comm.fail(&plugin.Error{Code: plugin.CodeOf(err), Rank: d.comm.rank,
				Message: fmt.Sprintf("transport %s on rank %d: %s", e.Name, d.comm.rank, err)}, true)
		}
	}
}

// findLate fails the communicator where what this rank has enqueued waits for a rank that will not come.
func (d *device) findLate(now time.Time) {
	ours := slices.ContainsFunc(d.comm.endpoints.List, func(e *endpoints.Endpoint) bool { return e.Enqueues.Load() })
	if reason := d.late.Look(&d.comm.observer, &d.flights, ours, d.exec.Idle, now); reason != nil {
		d.comm.fail(reason, true)
	}
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
		d.look()
		// What the kernels waited for, the peers had said before they launched theirs.
		c.compareCalls()
		c.failFor(c.observer.Conflict())
	}
	return c.observer.Failed("synchronize")
}

// graceful is the time that operations in flight have after a failure that does not concern them: the plugin's process
// is gone, but not what it made.
const graceful = 2 * time.Second

// abortDevice ends the GPU's operations: at once, but after the loss of a plugin only those that have not ended by
// themselves within a while.
func (c *Communicator) abortDevice(reason *plugin.Error) {
	if c.device == nil {
		return
	}
	if reason.Code != plugin.PluginDied {
		c.device.exec.Abort()
		return
	}
	time.AfterFunc(graceful, c.device.exec.Abort)
}

// DeviceBytes returns the device memory that the communicator's transports hold on this rank's GPU, windows not
// included; 0 for host memory, and once the communicator is closed.
func (c *Communicator) DeviceBytes() int64 {
	if c.device == nil || c.waitTurn("device bytes") != nil {
		return 0
	}
	defer c.release()
	return c.endpoints.DeviceBytes()
}
