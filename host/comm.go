package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/allocator"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/internal/endpoints"
	"github.com/shunt-ccl/shunt/host/internal/job"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/host/internal/regroup"
	"github.com/shunt-ccl/shunt/host/internal/turn"
	"github.com/shunt-ccl/shunt/host/report"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// Communicator is a group of ranks that run collectives together. Its methods may be called from any goroutine;
// operations run one at a time, in the order they were called, and every rank must call the collective ones in the same
// order.
type Communicator struct {
	job       *job.Job
	member    job.Member // what the job watches
	group     *bootstrap.Group
	engine    *executor.Engine
	compares  bool // collectives across ranks before each, as SHUNT_CHECK asks for on some rank
	checker   call.Checker
	observer  diagnosis.Observer
	device    *device // nil for host memory
	endpoints endpoints.Set

	turn       turn.Turn[*Request] // its holder may use what follows
	lost       *Request            // one that failed by itself, whose error the caller may not have; nil: none
	ledger     diagnosis.Ledger
	counters   regroup.Counters
	allocators allocator.Set
	scratch    arguments
	inFlight   []call.Call // of a group
	repeats    [quickShapes]repeated
	latest     latest
	plans      plans.Planner
	watchdog   diagnosis.Watchdog // the watchdog goroutine's alone
	closeOnce  func() error       // the first call closes
}

// arguments is the scratch of a single operation; it belongs to the caller that was admitted, so a call allocates
// nothing.
type arguments struct {
	call      call.Call
	symmetric *buffers.Range // that the receive memory of the call lies in; nil: none
	arrays    []int64
	exec      executor.Arguments
	program   plans.Program // of a call that is not the latest one again
	marked    bool          // the plan that runs on host memory compares the call with the other ranks'
}

// Rank returns this process's number within the communicator.
func (c *Communicator) Rank() int { return c.observer.Rank }

// World returns the number of ranks.
func (c *Communicator) World() int { return c.observer.World }

// Label names the communicator in messages: "world" for the first one.
func (c *Communicator) Label() string { return c.observer.Label }

// Topology says where every rank of the communicator runs.
func (c *Communicator) Topology() *topology.Topology { return c.observer.Topology }

// Do runs one operation and waits for it. It allocates nothing when it succeeds and its plan was prepared by an earlier
// call.
func (c *Communicator) Do(op *Operation) error {
	_ = *op // a nil pointer panics here, and not while others wait for the turn
	if !c.turn.Try() {
		if !c.threads(op) {
			request, err := c.enqueue(op)
			if err != nil {
				return err
			}
			return request.Wait(context.Background())
		}
		if err := c.turn.Wait(op.Collective.String()); err != nil {
			return err
		}
	}
	if c.quick(op) {
		c.turn.Leave()
		return nil
	}
	over := false
	defer c.unwind(&over)
	_, err := c.run(op, 0)
	over = true
	c.turn.Leave()
	return err
}

// unwind is deferred by calls that hold the turn. One that panics, as at an array that cannot be read, fails the
// communicator and leaves the turn: whoever recovers from it, as the C library does, can close the communicator.
func (c *Communicator) unwind(over *bool) {
	if *over {
		return
	}
	c.fail(&plugin.Error{Code: plugin.Internal, Rank: c.Rank(), Message: fmt.Sprintf(
		"a call on rank %d ended with a panic; look whether its arguments point to memory that can be read", c.Rank())}, true)
	c.turn.Leave()
}

// enter takes the turn for a call that may wait for it.
func (c *Communicator) enter(what string) (release func(), err error) {
	return c.entered(what, c.turn.Wait(what))
}

// enterContext is enter for a call with a context, and numbers the call among those of its kind: one that gives up
// while it waits has its number too, as on the ranks where it does not wait.
func (c *Communicator) enterContext(ctx context.Context, what, kind string) (number int, release func(), err error) {
	err = c.turn.WaitContext(ctx, what, func() { number = c.counters.Next(kind) })
	if end := ctx.Err(); err != nil && errors.Is(err, end) {
		err = plugin.Errorf(plugin.CodeOf(end), "%s on rank %d: another call of the communicator has not returned", what,
			c.Rank())
	}
	release, err = c.entered(what, err)
	return number, release, err
}

// entered looks whether the communicator has failed, once a call has the turn, unless that failed.
func (c *Communicator) entered(what string, err error) (release func(), _ error) {
	if err != nil {
		return nil, err
	}
	if c.lookForFailure() {
		c.turn.Leave()
		return nil, c.observer.Failed(what)
	}
	return c.turn.Leave, nil
}

// closed returns the error of a call that takes no turn, if the communicator is closed.
func (c *Communicator) closed(what string) error {
	if c.turn.Closed() {
		return c.observer.ClosedError(what)
	}
	return nil
}

// lookForFailure says whether the communicator has failed. It makes what a kernel has reported by now its failure, so
// that a caller that waited for a stream by other means than Synchronize learns of it in the next call. The caller is
// admitted.
func (c *Communicator) lookForFailure() bool {
	if c.device != nil && c.device.Exec.Faulted() {
		c.endpoints.Look()
	}
	return c.observer.Failure.Reason() != nil
}

// run executes one operation. The caller is admitted. With a block limit it may return earlier than to the end; see
// outcome.
func (c *Communicator) run(op *Operation, blockLimit time.Duration) (outcome, error) {
	if c.lookForFailure() { // names are looked up for errors only
		number := c.ledger.Collectives + 1
		c.refused(op, number)
		return ended, c.observer.Failed(diagnosis.Numbered(op.Collective, number))
	}
	a := &c.scratch
	known, err := c.again(op)
	if err != nil {
		return ended, c.ledger.Reject(op.Collective, err)
	}
	if !known {
		if err := c.check(op, a.arrays, &a.call); err != nil {
			return ended, c.ledger.Reject(op.Collective, err)
		}
		a.symmetric = c.endpoints.Symmetric.Mark(&a.call)
		if err := c.rejectSelf(op); err != nil {
			return ended, err
		}
	}
	if blockLimit > 0 && c.needsAgreement(&a.call, known) {
		return untried, nil
	}
	if c.device != nil {
		if err := c.device.inspect(&a.call); err != nil {
			return ended, c.ledger.Reject(op.Collective, err)
		}
	}
	if !known {
		a.call.Identify(c.World())
	}
	c.ledger.Next(&a.call, c.World())
	program := &c.latest.program
	if !known {
		if a.program, err = c.programs(&a.call); err != nil {
			c.ledger.Publish(&a.call) // which all ranks count
			c.engine.NoteCall()
			return ended, err
		}
		program = &a.program
	}
	if c.compares && !op.Collective.PointToPoint() {
		if err := c.plans.Compare(c.job.Context, c.ledger.Collectives, &a.call); err != nil {
			return ended, err
		}
	}
	a.exec.Send, a.exec.Recv = a.call.Send, a.call.Recv
	if !known {
		a.exec.Slots, a.exec.Arrays = a.call.Slots, a.call.Arrays
	}
	if c.device != nil {
		err := c.runOnDevice(op, program)
		if err == nil && !known {
			c.remember(op, program)
		}
		return ended, err
	}
	c.ledger.Begin(&a.call, program.ComparesLengths)
	a.marked = program.Marked
	pausing, err := c.engine.RunFor(program.Host, &a.exec, c.observer.Timeout(), blockLimit)
	if pausing {
		return paused, nil
	}
	if err := c.complete(op.Collective, err); err != nil {
		return ended, err
	}
	if !known {
		c.remember(op, program)
	}
	c.repeat(op, &a.call, program)
	return ended, nil
}

// rejectSelf rejects a message of a rank to itself, which nobody would match.
func (c *Communicator) rejectSelf(op *Operation) error {
	if !op.Collective.PointToPoint() || op.Collective.OneSided() || op.Root != c.Rank() {
		return nil
	}
	what := "send to"
	if op.Collective == plugin.Recv {
		what = "receive from"
	}
	return c.ledger.Reject(op.Collective, c.checker.Invalid(op.Collective,
		"a rank cannot %s itself outside a group", what))
}

// runOnDevice enqueues the operation that the scratch was filled for.
func (c *Communicator) runOnDevice(op *Operation, program *plans.Program) error {
	err := c.device.run(&c.scratch.call, c.scratch.symmetric, program, &c.scratch.exec, streamOf(op.Stream))
	if err != nil && c.observer.Failure.Reason() == nil { // a capture's error, which concerns no other rank
		c.ledger.TakeBack(op.Collective)
		c.endpoints.TellAtOnce() // it may have waited for peers, and told them of the call
		return c.ledger.Reject(op.Collective, err)
	}
	return err
}

// complete ends a single operation of the CPU's executor, err being the executor's, and compares it with the other
// ranks' where its plan does not.
func (c *Communicator) complete(collective plugin.Collective, err error) error {
	if err != nil || c.ledger.Unchecked.Any() { // names are looked up for errors only
		if err := c.finish(c.ledger.Name(collective), err); err != nil {
			return err
		}
	}
	c.forget()
	if !c.scratch.marked && c.ledger.Mark != 0 {
		if c.observer.Contradicts(c.ledger.Mark) {
			c.compareCalls()
		}
		if c.observer.Failure.Reason() != nil {
			return c.observer.Failed(c.ledger.Name(collective))
		}
	}
	return nil
}

// finish ends an operation or a group of the CPU's executor.
func (c *Communicator) finish(what string, err error) error {
	c.forget()
	if err != nil {
		c.ledger.Unchecked.Forget()
		return c.failRun(what, err)
	}
	c.inFlight = nil
	if c.ledger.Unchecked.Any() {
		c.failFor(c.ledger.Unchecked.Compare(&c.observer))
		return c.observer.Failed(what)
	}
	return nil
}

// forget drops the caller's memory, which the scratch must not keep alive.
func (c *Communicator) forget() {
	a := &c.scratch
	a.exec.Send, a.exec.Recv = nil, nil
	a.call.Send, a.call.Recv = nil, nil
}

// programs returns the plan for a call, from the cache or prepared now, which is collective.
func (c *Communicator) programs(call *call.Call) (plans.Program, error) {
	if program, known, err := c.plans.Find(call); known {
		return program, err
	}
	c.ledger.Publish(call)
	c.engine.Announce()
	c.engine.NoteCall()
	return c.plans.Prepare(c.job.Context, c.ledger.Collectives, call)
}

// NoteRejection tells peers that this rank has not made a call, for what a binding or the program found wrong with it
// before it came to the communicator; call is its name, such as all_reduce. Errors of ranks that wait for it then say
// why, as they do of calls that the communicator refuses itself. Nothing else changes. It may be called from any
// goroutine.
func (c *Communicator) NoteRejection(call, why string) {
	number := uint64(0)
	collective, err := plugin.ParseCollective(call)
	if err == nil && !collective.PointToPoint() && c.turn.Try() { // else another call is under way, whose number counts
		number = c.ledger.Collectives + 1
		c.turn.Leave()
	}
	_ = c.observer.Reject(number, call, errors.New(why)) // the caller has it
}

// blame finds whose plan the operation ran that the executor says has failed.
func (c *Communicator) blame() plans.Blame {
	return plans.Blame{Planner: &c.plans, Call: &c.scratch.call, Group: c.inFlight}
}

// failRun makes the communicator fail, for every rank, by what the executor says of an operation. The result is the
// error that users see.
func (c *Communicator) failRun(what string, err error) error {
	if c.observer.Failure.Reason() != nil {
		return c.observer.FailedAlready(what, err, c.blame())
	}
	c.fail(c.observer.RunFailure(err, c.blame()), true)
	return c.observer.Failed(what)
}

var failTold = failpoint.New("communicator.told", "a communicator has failed here, before the other ranks are told")

// fail makes the communicator fail for good; the first reason wins. With spread, the other ranks learn it.
func (c *Communicator) fail(reason *plugin.Error, spread bool) {
	if !c.observer.Failure.Set(reason) {
		return
	}
	if spread {
		failTold.Hit()
		c.group.Fail(reason)
	}
	c.observer.Failure.Told()
	c.engine.Abort(reason.Code, reason.Rank)
	c.endpoints.Abort(reason)
	c.observer.Failure.File(c.observer.Logger, c.report)
	c.observer.Logger.Info("communicator failed", "communicator", c.Label(), "rank", c.Rank(), "reason", reason.Message)
}

// refused notes a call that the failure of the communicator refuses. A collective has the number.
func (c *Communicator) refused(op *Operation, number uint64) {
	if op.Collective.PointToPoint() {
		number--
	}
	call := report.NewCall(number, op.Collective, op.Root, report.Called)
	if c.observer.Failure.Refused(call) {
		c.observer.Failure.FileAgain(c.observer.Logger, c.report)
	}
}

// failFor makes the communicator fail everywhere if there is a reason.
func (c *Communicator) failFor(reason *plugin.Error) {
	if reason != nil {
		c.fail(reason, true)
	}
}

// compareCalls looks whether a rank has called another collective than this one, and fails the communicator if so. It
// may be called from any goroutine.
func (c *Communicator) compareCalls() {
	if c.observer.Failure.Reason() == nil {
		c.failFor(c.observer.Disagreement())
	}
}

// look looks at operations that wait for long, and finds the ranks that disagree about what is being called.
func (c *Communicator) look() {
	c.endpoints.Tell()
	c.compareCalls()
	if c.device != nil {
		c.endpoints.Look()
		c.failFor(c.observer.Conflict())
		c.watchdog.LookAtRejections(&c.observer, c.plans.Stall)
		return
	}
	c.failFor(c.watchdog.LookAtStall(&c.observer, c.plans.Stall, c.endpoints.NameAt))
}

// Abort makes the communicator fail here and on every peer: operations in flight return an error at once, which has the
// reason, in one line and cut at 4,096 bytes. It may be called from any goroutine.
func (c *Communicator) Abort(reason string) {
	reason = cmp.Or(strings.TrimSpace(oneLine(reason)), "no reason given")
	message := fmt.Sprintf("rank %d aborted: %s", c.Rank(), reason)
	message = strings.ToValidUTF8(message[:min(len(message), wire.MaxMessage)], "") // what other ranks get
	c.fail(&plugin.Error{Code: plugin.Aborted, Rank: c.Rank(), Message: message}, true)
	c.observer.Failure.Wait()
}

// SetTimeout changes the deadline of what this rank calls from now on, also on communicators that are made of this one
// later; an operation that runs already keeps its own. On a GPU it bounds what is enqueued already, and graphs, too. It
// may be called from any goroutine. A longer one on one rank alone does not keep the others from ending what waits for
// it.
func (c *Communicator) SetTimeout(limit time.Duration) error {
	if limit <= 0 {
		return c.observer.Invalid("set_timeout", "the timeout %v is not positive", limit)
	}
	if err := c.closed("set_timeout"); err != nil {
		return err
	}
	c.observer.SetTimeout(limit)
	c.group.SetTimeout(limit)
	if c.device != nil {
		c.device.Exec.SetTimeout(limit)
	}
	return nil
}

// oneLine returns text in one line, without what a terminal or a decoder might stumble over.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// Err returns the reason why the communicator failed, or nil. On a GPU that is also what has ended in a stream by now.
func (c *Communicator) Err() error {
	if c.device != nil && c.observer.Failure.Reason() == nil && !c.turn.Closed() {
		c.endpoints.Glance()
	}
	if f := c.observer.Failure.Reason(); f != nil {
		c.observer.Failure.Wait()
		return f
	}
	return nil
}

// Close ends this rank's part in the communicator and releases everything it holds. It waits for operations in flight
// here, never for peers. It returns the errors of releasing, and that of a started operation which nobody has asked
// for; the communicator is closed all the same. On a GPU it waits two seconds at most: what is running then continues,
// and ends well if the peers come. What fails once Close has begun is its error, or is logged where it comes later.
func (c *Communicator) Close() error { return c.closeOnce() }

func (c *Communicator) close() error {
	c.allocators.End()
	c.turn.Shut()
	var errs []error
	if c.lost != nil && c.lost.unheard.Load() {
		errs = append(errs, c.lost.err)
	}
	c.observer.Failure.Close()
	// Peers that still wait for this rank learn why it does not come. Those of a failure are told of that.
	if c.endpoints.Connected() && c.observer.Failure.Reason() == nil {
		c.ledger.PublishClosed()
		c.endpoints.TellAtOnce()
	}
	c.job.Forget(&c.member)
	errs = append(errs, c.endpoints.Halt(), c.endpoints.CloseWindows())
	c.plans.Free()
	if c.engine != nil {
		c.engine.Close()
	}
	errs = append(errs, c.endpoints.Close())
	if c.group != nil {
		errs = append(errs, c.group.Close())
	}
	errs = append(errs, c.job.Release(&c.member))
	return errors.Join(errs...)
}
