package host

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// doGroup runs operations as one group: together if they are of different
// peers or directions, in order where they share one.
func (c *Communicator) doGroup(ctx context.Context, operations []Operation) error {
	if len(operations) == 0 {
		return nil
	}
	if !c.turn.Try() {
		if !c.anyThreads(operations) {
			request, err := c.enqueueGroup(operations)
			if err != nil {
				return err
			}
			return request.Wait(ctx)
		}
		if err := c.turn.Wait("group"); err != nil {
			return err
		}
	}
	over := false
	defer c.unwind(&over)
	_, err := c.runGroup(operations, 0)
	over = true
	c.turn.Leave()
	return err
}

// Part holds the operations of one communicator in RunTogether.
type Part struct {
	Comm       *Communicator
	Operations []Operation
}

// RunTogether runs operations of several communicators of this process at once,
// and returns when each part is enqueued (device memory) or has ended (host
// memory). It is for a thread that drives several GPUs, one rank each: called one
// after another, the first rank's operation may wait for a rank that the same
// thread has yet to call, when it is the first of its kind. Parts of one
// communicator keep their order; within a part collectives run in the order
// given, and sends, receives and one-sided operations between them as one group.
// The calling thread's own stream (CU_STREAM_PER_THREAD) is refused.
func RunTogether(parts ...Part) error {
	var order []*Communicator
	operations := map[*Communicator][]Operation{}
	for i, p := range parts {
		if p.Comm == nil {
			return plugin.Errorf(plugin.InvalidArgument, "run together: part %d names no communicator", i)
		}
		if _, seen := operations[p.Comm]; !seen {
			order = append(order, p.Comm)
		}
		operations[p.Comm] = append(operations[p.Comm], p.Operations...)
		if err := p.Comm.rejectThreadStream("run together", p.Operations); err != nil {
			return err
		}
	}
	errs := make([]error, len(order))
	var all sync.WaitGroup
	for i, c := range order {
		all.Go(func() { errs[i] = c.runParts(operations[c]) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// runParts runs collectives by themselves and what is between them as groups.
func (c *Communicator) runParts(operations []Operation) error {
	for len(operations) > 0 {
		n := slices.IndexFunc(operations, func(op Operation) bool { return !op.Collective.PointToPoint() })
		if n < 0 {
			n = len(operations)
		}
		var err error
		if n == 0 {
			n, err = 1, c.Do(&operations[0])
		} else {
			err = c.doGroup(context.Background(), operations[:n])
		}
		if err != nil {
			return err
		}
		operations = operations[n:]
	}
	return nil
}

// Lanes of a group: sends to one peer keep their order, as do receives from
// one peer; collectives and one-sided operations keep theirs among themselves.
const (
	laneSend = iota
	laneRecv
	laneKinds
)

// runGroup checks every operation before it runs any. The caller is admitted. Of
// the outcomes it returns ended and paused: the plans of a group were prepared when
// the communicator or the window was made.
func (c *Communicator) runGroup(operations []Operation, blockLimit time.Duration) (outcome, error) {
	if c.lookForFailure() {
		c.refused(&operations[0], c.ledger.Collectives+1)
		return ended, c.observer.Failed("group")
	}
	calls := make([]call.Call, len(operations))
	for i := range operations {
		op := &operations[i]
		if op.Collective.Valid() && !op.Collective.PointToPoint() {
			return ended, c.ledger.Reject(op.Collective, c.checker.Invalid(op.Collective,
				"a group takes send, recv and one-sided operations only"))
		}
		if err := c.check(op, make([]int64, 4*c.World()), &calls[i]); err != nil {
			return ended, c.ledger.Reject(op.Collective, err)
		}
	}
	if c.device != nil {
		c.ledger.Number++
		if err := c.device.runGroup(operations, calls); err != nil {
			return ended, c.observer.Reject(0, "group", err)
		}
		return ended, nil
	}
	remaining, err := c.copyToSelf(calls)
	if err != nil {
		return ended, c.observer.Reject(0, "group", err)
	}
	c.ledger.Number++
	launches := make([]executor.Launch, 0, len(remaining))
	for i := range remaining {
		call := &remaining[i]
		program, err := c.programs(call)
		if err != nil {
			return ended, err
		}
		call.ComparesLength = program.ComparesLengths
		launch := executor.Launch{Program: program.Host, Lane: c.lane(call)}
		launch.Arguments.Send, launch.Arguments.Recv = call.Send, call.Recv
		launch.Arguments.Slots, launch.Arguments.Arrays = call.Slots, call.Arrays
		launches = append(launches, launch)
	}
	for i := range remaining { // nothing can reject the group any more
		c.ledger.CompareLater(&remaining[i], remaining[i].ComparesLength)
		if messages, message := c.ledger.Messages(&remaining[i]); messages != nil {
			launches[i].Note = messages.Take(message)
		}
	}
	if len(launches) == 0 {
		return ended, nil
	}
	c.ledger.Publish(&remaining[0])
	c.inFlight = remaining
	pausing, err := c.engine.RunGroupFor(launches, c.observer.Timeout(), blockLimit)
	if pausing {
		return paused, nil
	}
	return ended, c.finish("group", err)
}

func (c *Communicator) lane(call *call.Call) int {
	switch call.Collective {
	case plugin.Send:
		return call.Root*laneKinds + laneSend
	case plugin.Recv:
		return call.Root*laneKinds + laneRecv
	}
	return c.World() * laneKinds // behind those of messages
}

// copyToSelf matches sends to this rank itself with its receives, in order,
// and returns the other calls.
func (c *Communicator) copyToSelf(calls []call.Call) ([]call.Call, error) {
	sends, recvs, err := call.ToSelf(c.Rank(), calls)
	if err != nil {
		return nil, err
	}
	for i := range sends {
		if n := sends[i].Slots[plugin.SlotBytes]; n > 0 {
			copy(unsafe.Slice((*byte)(recvs[i].Recv), n), unsafe.Slice((*byte)(sends[i].Send), n))
		}
	}
	self := func(call call.Call) bool {
		return call.Root == c.Rank() && (call.Collective == plugin.Send || call.Collective == plugin.Recv)
	}
	return slices.DeleteFunc(slices.Clone(calls), self), nil
}
