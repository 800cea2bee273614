package host

import (
	"context"
	"errors"
	"slices"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// doGroup runs operations as one group: together if they are of different
// peers or directions, in order where they share one.
func (c *Communicator) doGroup(ctx context.Context, operations []Operation) error {
	if len(operations) == 0 {
		return nil
	}
	if !c.turn.try() {
		request, err := c.enqueue(operations)
		if err != nil {
			return err
		}
		return request.Wait(ctx)
	}
	defer c.release()
	return c.runGroup(operations)
}

// Lanes of a group: sends to one peer keep their order, as do receives from
// one peer; collectives and one-sided operations keep theirs among themselves.
const (
	laneSend = iota
	laneRecv
	laneKinds
	laneOther = 0 // behind the point-to-point lanes: world*laneKinds
)

// runGroup checks every operation before it runs any. The caller is admitted.
func (c *Communicator) runGroup(operations []Operation) error {
	if err := c.usable("group"); err != nil {
		return err
	}
	calls := make([]call, len(operations))
	for i := range operations {
		op := &operations[i]
		if err := c.check(op, make([]int64, 4*c.world), &calls[i]); err != nil {
			return err
		}
		if !op.Collective.PointToPoint() {
			return c.invalid(op, "a group takes send, recv and one-sided operations only")
		}
	}
	if c.device != nil {
		c.seq++
		return c.device.runGroup(operations, calls)
	}
	remaining, err := c.copyToSelf(calls)
	if err != nil {
		return err
	}
	c.seq++
	launches := make([]executor.Launch, 0, len(remaining))
	for i := range remaining {
		call := &remaining[i]
		program, err := c.programs(call)
		if err != nil {
			return err
		}
		launch := executor.Launch{Program: program.host, Lane: c.lane(call)}
		launch.Arguments.Send, launch.Arguments.Recv = call.send, call.recv
		launch.Arguments.Slots, launch.Arguments.Arrays = call.slots, call.arrays
		launches = append(launches, launch)
	}
	if len(launches) == 0 {
		return nil
	}
	c.publish(&remaining[0])
	err = c.engine.RunGroup(launches, c.timeout)
	if err != nil {
		return c.explainFailure("group", err)
	}
	return nil
}

func (c *Communicator) lane(call *call) int {
	switch call.collective {
	case plugin.Send:
		return call.root*laneKinds + laneSend
	case plugin.Recv:
		return call.root*laneKinds + laneRecv
	}
	return c.world*laneKinds + laneOther
}

// copyToSelf matches sends to this rank itself with its receives, in order,
// and returns the other calls.
func (c *Communicator) copyToSelf(calls []call) ([]call, error) {
	var sends, recvs []*call
	for i := range calls {
		if calls[i].root != c.rank {
			continue
		}
		switch calls[i].collective {
		case plugin.Send:
			sends = append(sends, &calls[i])
		case plugin.Recv:
			recvs = append(recvs, &calls[i])
		}
	}
	if len(sends) != len(recvs) {
		return nil, plugin.Errorf(plugin.InvalidArgument, "group on rank %d: %d sends to itself but %d receives from itself", c.rank, len(sends), len(recvs))
	}
	var errs []error
	for i := range sends {
		n := sends[i].slots[plugin.SlotBytes]
		if m := recvs[i].slots[plugin.SlotBytes]; m != n {
			errs = append(errs, plugin.Errorf(plugin.Mismatch, "group on rank %d: sends %d bytes to itself but receives %d", c.rank, n, m))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i := range sends {
		if n := sends[i].slots[plugin.SlotBytes]; n > 0 {
			copy(unsafe.Slice((*byte)(recvs[i].recv), n), unsafe.Slice((*byte)(sends[i].send), n))
		}
	}
	self := func(call call) bool {
		return call.root == c.rank && (call.collective == plugin.Send || call.collective == plugin.Recv)
	}
	return slices.DeleteFunc(slices.Clone(calls), self), nil
}
