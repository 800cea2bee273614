package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/host/watch"
	"github.com/shunt-ccl/shunt/plugin"
)

// Communicator is a group of ranks that run collectives together. Its methods
// may be called from any goroutine; operations run one at a time, in the order
// they were called, and every rank must call the collective ones in the same
// order.
type Communicator struct {
	rank, world int
	label       string // "world", "world/1.0": names the communicator in messages and tags
	ranks       []int  // this communicator's ranks as ranks of the job
	job         *job
	group       *bootstrap.Group
	topology    *topology.Topology
	engine      *executor.Engine
	maxSMs      int  // the ranks' smallest budget of multiprocessors, 0: none
	peerRead    bool // every rank can read every other rank's memory
	nvlink      bool // every two GPUs of the ranks are joined by NVLink
	checker     call.Checker
	share       *memory.Share
	device      *device     // nil for host memory
	control     []io.Closer // every rank's control page
	loaded      []*Loaded   // the transports as the communicator found them
	attached    []*attached
	timeout     time.Duration
	logger      *slog.Logger

	turn          turn   // who holds it may touch what follows
	seq           uint64 // operations, for messages and records
	collectives   uint64 // collective ones alone, which all ranks count alike
	hash          uint64 // of those, see calls.go,
	previous      uint64 // and before the latest one
	mark          executor.Mark
	splits        int
	shrinks       atomic.Int32
	windows       map[uint32]*Window
	windowCount   int
	registrations int
	exchanges     int // rounds for plans, which all ranks count
	symmetric     symmetricRanges
	scratch       arguments
	inFlight      []call.Call // of a group
	repeats       [quickShapes]repeated
	latest        latest
	signatures    signatures
	warned        uint64 // the watchdog's: collective whose stall was reported last,
	excused       string // and what ranks were said to have refused
	refusalLook   refusalLook
	unchecked     []received // of the operation in flight
	deserted      int        // the watchdog's: waited-for rank that had closed at its last look, or -1
	failure       atomic.Pointer[plugin.Error]
	filing        filing
	closeOnce     sync.Once
	closeErr      error
}

// arguments is what a single operation needs; it belongs to whoever was
// admitted, so a call allocates nothing.
type arguments struct {
	call      call.Call
	symmetric *symmetricRange // that the receive memory of the call lies in; nil: none
	arrays    []int64
	exec      executor.Arguments
}

// Rank is this process's number within the communicator.
func (c *Communicator) Rank() int { return c.rank }

// World is the number of ranks.
func (c *Communicator) World() int { return c.world }

// Label names the communicator in messages: "world" for the first one.
func (c *Communicator) Label() string { return c.label }

// Topology says where every rank of the communicator runs.
func (c *Communicator) Topology() *topology.Topology { return c.topology }

// Do runs one operation and waits for it. It allocates nothing when it
// succeeds and its plan was prepared by an earlier call.
func (c *Communicator) Do(op *Operation) error {
	if !c.turn.try() {
		if !c.threads(op) {
			request, err := c.enqueue([]Operation{*op})
			if err != nil {
				return err
			}
			return request.Wait(context.Background())
		}
		if err := c.waitTurn(op.Collective.String()); err != nil {
			return err
		}
	}
	if c.quick(op) {
		c.release()
		return nil
	}
	_, err := c.run(op, 0)
	c.release()
	return err
}

// release gives the turn back, to the oldest waiting request if there is one.
func (c *Communicator) release() {
	if !c.turn.leave() {
		go c.drain()
	}
}

// enter takes the turn for a call that may wait for it.
func (c *Communicator) enter(what string) (release func(), err error) {
	if err := c.waitTurn(what); err != nil {
		return nil, err
	}
	if err := c.usable(what); err != nil {
		c.release()
		return nil, err
	}
	return c.release, nil
}

// gone is the error of a call on a closed communicator.
func (c *Communicator) gone(what string) error {
	return &plugin.Error{Code: plugin.Closed, Rank: c.rank, Message: fmt.Sprintf("%s on rank %d: communicator %s is closed", what, c.rank, c.label)}
}

// usable is nil unless the communicator has failed.
func (c *Communicator) usable(what string) error {
	if f := c.failure.Load(); f != nil {
		return c.failed(what, f)
	}
	return nil
}

// run executes one operation. The caller is admitted. With patience it may come
// less far than to the end; see outcome.
func (c *Communicator) run(op *Operation, patience time.Duration) (outcome, error) {
	if c.failure.Load() != nil { // names are looked up for errors only
		return ended, c.usable(c.numbered(op.Collective, c.collectives+1))
	}
	a := &c.scratch
	program, known, err := c.again(op)
	if err != nil {
		return ended, c.refused(op.Collective, err)
	}
	if !known {
		if err := c.check(op, a.arrays, &a.call); err != nil {
			return ended, c.refused(op.Collective, err)
		}
		a.symmetric = c.symmetric.mark(&a.call, c.world)
		if op.Collective.PointToPoint() && op.Collective <= plugin.Recv && op.Root == c.rank {
			return ended, c.refused(op.Collective, c.checker.Invalid(op.Collective, "a rank cannot %s to itself outside a group", op.Collective))
		}
		if patience > 0 && c.asks(&a.call) {
			return untried, nil
		}
	}
	if c.device != nil {
		if err := c.device.inspect(&a.call); err != nil {
			return ended, c.refused(op.Collective, err)
		}
	}
	if !known {
		a.call.Identify(c.world)
	}
	c.next(&a.call)
	if !known {
		if program, err = c.programs(&a.call); err != nil {
			c.publish(&a.call) // which all ranks count
			c.engine.NoteCall()
			return ended, err
		}
	}
	if c.device != nil && c.job.checks && !op.Collective.PointToPoint() {
		if err := c.compare(c.ask(&a.call)); err != nil {
			return ended, err
		}
	}
	a.exec.Send, a.exec.Recv = a.call.Send, a.call.Recv
	if !known {
		a.exec.Slots, a.exec.Arrays = a.call.Slots, a.call.Arrays
	}
	if c.device != nil {
		err := c.device.run(&a.call, a.symmetric, program.kernels, &a.exec, streamOf(op.Stream))
		if err != nil && c.failure.Load() == nil { // a capture's error, which concerns nobody else
			c.takeBack(op.Collective)
			return ended, c.refused(op.Collective, err)
		}
		return ended, err
	}
	c.publish(&a.call)
	if op.Collective == plugin.Send || op.Collective == plugin.Recv {
		c.compareLater(&a.call, program.lengths)
		messages, message := c.messages(&a.call)
		messages.Note(message)
		messages.Begun()
	}
	if a.call.Arrays != nil {
		c.noteBlocks(&a.call)
	}
	pausing, err := c.engine.RunFor(program.host, &a.exec, c.timeout, patience)
	if pausing {
		return paused, nil
	}
	if err != nil || len(c.unchecked) > 0 { // names are looked up for errors only
		if err := c.ran(c.numbered(op.Collective, c.collectives), err); err != nil {
			return ended, err
		}
	}
	c.forget()
	if !program.marks && c.mark != 0 {
		if c.compareAfter(); c.failure.Load() != nil {
			return ended, c.usable(c.numbered(op.Collective, c.collectives))
		}
	}
	c.repeat(op, &a.call, program, known)
	return ended, nil
}

// ran ends an operation of the CPU's executor.
func (c *Communicator) ran(what string, err error) error {
	c.forget()
	if err != nil {
		c.unchecked = c.unchecked[:0]
		return c.explainFailure(what, err)
	}
	c.inFlight = nil
	if len(c.unchecked) > 0 {
		c.compareMessages()
		return c.usable(what)
	}
	return nil
}

// forget drops the caller's memory, which the scratch must not keep alive.
func (c *Communicator) forget() {
	a := &c.scratch
	a.exec.Send, a.exec.Recv = nil, nil
	a.call.Send, a.call.Recv = nil, nil
}

// publish puts the operation into this rank's control page, where peers'
// watchdogs read it.
func (c *Communicator) publish(call *call.Call) {
	c.engine.Record(c.collectives, c.seq, uint32(call.Collective), call.RecordedType(), uint32(call.Op), call.Count, int32(call.Root))
	if !call.Collective.PointToPoint() {
		c.engine.Mark(c.mark)
	}
}

// explainFailure turns the executor's error into the one users see, and makes
// the communicator fail for every rank.
func (c *Communicator) explainFailure(what string, err error) error {
	var detail *executor.Failure
	if f := c.failure.Load(); f != nil {
		if errors.As(err, &detail) && detail.Stuck {
			f = &plugin.Error{Code: f.Code, Rank: f.Rank, Cause: f, Message: f.Message + "; and " + c.nativeFailed(detail)}
		}
		return c.failed(what, f)
	}
	reason := &plugin.Error{Code: plugin.CodeOf(err), Rank: c.rank, Message: err.Error(), Cause: err}
	switch {
	case !errors.As(err, &detail):
	case detail.Native:
		reason.Message = fmt.Sprintf("rank %d: %s", c.rank, c.nativeFailed(detail))
	case detail.Code == plugin.Timeout:
		reason = c.noAnswer(detail.Rank, c.where(detail))
		reason.Cause = err
	}
	if detail != nil && detail.Code == plugin.Mismatch {
		reason = c.disagreed(detail.Rank)
	}
	if detail != nil && detail.Rank >= 0 {
		switch detail.Code {
		case plugin.PeerDied:
			reason.Message = c.peerName(detail.Rank) + " ended while its memory was read"
			reason.Rank = detail.Rank
		case plugin.System:
			reason.Message = fmt.Sprintf("%s; if the kernel lets nobody read that memory, set SHUNT_PEER_READ=off", err)
		}
	}
	c.fail(reason, true)
	return c.failed(what, c.failure.Load())
}

// noAnswer is the timeout of a rank that waited for peer, as all ranks are told it;
// where says in which step, if that is known.
func (c *Communicator) noAnswer(peer int, where string) *plugin.Error {
	reason := &plugin.Error{Code: plugin.Timeout, Rank: c.rank, Message: fmt.Sprintf("rank %d had no answer from %s for %v", c.rank, c.peerName(peer), c.timeout)}
	if where != "" {
		reason.Message += " " + where
	}
	if peer >= 0 && peer < c.world {
		reason.Rank = peer
		reason.Message += fmt.Sprintf("; that rank %s, rank %d %s", c.state(peer), c.rank, c.state(c.rank))
	}
	reason.Message += c.refusals(absence)
	if c.device != nil && peer != c.rank && peer >= 0 && peer < c.world && c.topology.SameProcess(c.rank, peer) {
		reason.Message += fmt.Sprintf("; rank %d is in the same process, where cudaFree of a GPU's memory (torch.cuda.empty_cache frees that of all GPUs) blocks its thread until that GPU's kernels end, which may wait for what the thread calls next", peer)
	}
	return reason
}

// peerName names a rank of this communicator for messages.
func (c *Communicator) peerName(rank int) string {
	if rank < 0 || rank >= c.world {
		return "a peer"
	}
	place := c.topology.Places[rank]
	return fmt.Sprintf("peer rank %d (pid %d, host %s)", rank, place.PID, place.Host)
}

// fail makes the communicator fail for good; the first reason wins. With
// spread, the other ranks are told.
func (c *Communicator) fail(reason *plugin.Error, spread bool) {
	if !c.failure.CompareAndSwap(nil, reason) {
		return
	}
	c.logger.Info("communicator failed", "communicator", c.label, "rank", c.rank, "reason", reason.Message)
	if spread {
		c.job.tell(c, reason)
	}
	c.engine.Abort(reason.Code, reason.Rank)
	c.abortDevice(reason)
	c.file()
}

// numbered names an operation for its errors: a collective with its number, which
// is the same on all ranks and what their records and watchdogs say.
func (c *Communicator) numbered(collective plugin.Collective, number uint64) string {
	if collective.PointToPoint() {
		return collective.String()
	}
	return fmt.Sprintf("%s #%d", collective, number)
}

// failed words a failure for the call that meets it.
func (c *Communicator) failed(what string, reason *plugin.Error) error {
	c.filing.wait()
	return &plugin.Error{
		Code: reason.Code, Rank: reason.Rank, Cause: reason,
		Message: fmt.Sprintf("%s on rank %d: %s; communicator %s is aborted, call Shrink or re-create it", what, c.rank, reason.Message, c.label),
	}
}

// named puts the call's name and rank in front of an error of another layer.
func (c *Communicator) named(what string, err error) error {
	if f := c.failure.Load(); f != nil {
		return c.failed(what, f)
	}
	code := plugin.CodeOf(err)
	rank := c.rank
	var e *plugin.Error
	if errors.As(err, &e) && e.Rank >= 0 {
		rank = e.Rank
	}
	message := fmt.Sprintf("%s on rank %d: %v", what, c.rank, err)
	switch code {
	case plugin.Timeout, plugin.PeerDied, plugin.Closed:
		message += c.refusals(agreement)
	}
	return &plugin.Error{Code: code, Rank: rank, Message: message, Cause: err}
}

// deadline bounds a call that talks to peers over the rendezvous store.
func (c *Communicator) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, c.timeout, plugin.Errorf(plugin.Timeout, "no agreement within %v", c.timeout))
}

// transportTime bounds what transports do before the ranks agree about it: two thirds of
// what is left, so that the other ranks still hear which transport does not answer.
func transportTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)*2/3)
}

// Abort makes the communicator fail here and on every peer: operations in
// flight return an error at once. It may be called from any goroutine.
func (c *Communicator) Abort(reason string) {
	c.fail(&plugin.Error{Code: plugin.Aborted, Rank: c.rank, Message: fmt.Sprintf("rank %d aborted: %s", c.rank, reason)}, true)
	c.filing.wait()
}

// Err is the reason why the communicator failed, or nil.
func (c *Communicator) Err() error {
	if f := c.failure.Load(); f != nil {
		return f
	}
	return nil
}

// Close ends this rank's part in the communicator and releases everything it
// holds. It waits for operations in flight here, never for peers, and returns
// what went wrong in letting go; the communicator is closed all the same.
func (c *Communicator) Close() error {
	c.closeOnce.Do(func() { c.closeErr = c.close() })
	return c.closeErr
}

func (c *Communicator) close() error {
	c.turn.shut()
	c.filing.close(c.Err() != nil)
	if c.control != nil { // peers that still wait for this rank learn why in vain
		c.engine.Record(c.collectives+1, c.seq+1, uint32(watch.Closed), 0, 0, 0, 0)
		c.engine.Announce()
	}
	var errs []error
	c.job.forget(c)
	c.device.halt()
	for _, w := range c.windows {
		errs = append(errs, w.release())
	}
	errs = append(errs, c.releaseSymmetric())
	c.signatures.free()
	if c.engine != nil {
		c.engine.Close()
	}
	if c.device != nil {
		errs = append(errs, c.device.buffers.close())
	}
	for _, m := range c.control {
		errs = append(errs, m.Close())
	}
	for _, a := range c.attached {
		errs = append(errs, a.close())
	}
	errs = append(errs, c.device.close())
	if c.share != nil {
		errs = append(errs, c.share.Close())
	}
	if c.group != nil {
		errs = append(errs, c.group.Close())
	}
	errs = append(errs, c.job.release())
	return errors.Join(errs...)
}
