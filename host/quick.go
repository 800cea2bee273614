package host

import (
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/plugin"
)

// Programs repeat themselves. A broadcast, send or receive that has come a few times with the same length and root gets
// a short form (executor.Quick), and then the checks of what cannot have changed, the choice and the crossing into C
// fall away: a message of 8 bytes takes a third of the time. Whatever a short form cannot do goes the long way, errors
// included.

// quickShapes is the number of shapes whose short forms are kept.
const quickShapes = 8

// quickAfter is the number of times that a shape first takes the full path.
const quickAfter = 4

// shape identifies the calls that a short form serves.
type shape struct {
	collective plugin.Collective
	dtype      plugin.DType
	root       int
	count      int64
}

// repeated is a shape that was seen, and its short form, if it has one.
type repeated struct {
	shape
	seen       int
	form       *executor.Quick
	send, recv uintptr // bytes
	element    uintptr
	record     [6]uint64
	identity   call.Identity
	messages   *executor.Messages // that it counts among; nil for a broadcast
	message    executor.Message   // what is noted of it
	compared   bool               // by the plan, or it needs no comparison
}

func (c *Communicator) repeatedOf(op *Operation) *repeated {
	return &c.repeats[(uint64(op.Count)+uint64(op.Root)+uint64(op.Collective)<<1)%quickShapes]
}

// quick does an operation by its short form; false: it is to be run the long way. The caller is admitted.
func (c *Communicator) quick(op *Operation) bool {
	r := c.repeatedOf(op)
	if r.form == nil || r.count != op.Count || r.collective != op.Collective || r.root != op.Root || r.dtype != op.DType {
		return false
	}
	send, recv := uintptr(op.Send), uintptr(op.Recv)
	switch {
	case r.send > 0 && (send == 0 || send&(r.element-1) != 0 || send+r.send < send),
		r.recv > 0 && (recv == 0 || recv&(r.element-1) != 0 || recv+r.recv < recv),
		r.send > 0 && r.recv > 0 && send != recv && send < recv+r.recv && recv < send+r.send:
		return false // the long way says what is wrong
	}
	collectives, hash := c.ledger.Collectives, c.ledger.Hash
	if !op.Collective.PointToPoint() {
		collectives++
		if c.World() > 1 {
			hash = r.identity.On(hash)
			r.record[5] = uint64(executor.MarkOf(collectives, hash))
		}
	}
	r.record[0], r.record[4] = collectives, c.ledger.Number+1
	if r.messages != nil {
		r.messages.Note(r.message)
	}
	if !r.form.Try(op.Send, op.Recv, &r.record) {
		return false
	}
	c.ledger.Number, c.ledger.Collectives, c.ledger.Hash = c.ledger.Number+1, collectives, hash
	if r.messages != nil {
		r.messages.Begun()
		return r.compared || c.rightLength(op.Root, r)
	}
	return true
}

// rightLength compares the length of a message that a short form has received; false: the communicator has failed,
// which the long way says.
func (c *Communicator) rightLength(peer int, r *repeated) bool {
	c.ledger.Unchecked.Add(peer, r.messages.Count()-1, r.message)
	c.failFor(c.ledger.Unchecked.Compare(&c.observer))
	return c.observer.Failure.Reason() == nil
}

// latest is the operation that the scratch was filled for last, by all that decides what is in it but the addresses.
type latest struct {
	shape
	op      plugin.Op
	scalar  float64
	program plans.Program
	valid   bool
}

// again fills the scratch for an operation that is the latest one once more: only the addresses are checked then. It is
// not known where the operation is another one, and the scratch is free to be filled.
func (c *Communicator) again(op *Operation) (known bool, err error) {
	l := &c.latest
	if !l.valid || l.count != op.Count || l.collective != op.Collective || l.root != op.Root || l.dtype != op.DType ||
		l.op != op.Op || l.scalar != op.Scalar || op.DeviceCounts.SendCounts != nil {
		l.valid = false
		return false, nil
	}
	call := &c.scratch.call
	if err := c.checker.Readdress(call, op.Send, op.Recv, call.Slots[plugin.SlotBytes]); err != nil {
		return true, err
	}
	if c.device != nil && !c.placedAlike() {
		l.valid = false
		return false, nil
	}
	return true, nil
}

// placedAlike finds the symmetric range of the scratch's call at its new addresses, and reports whether it lies in one
// as before: the plan is another one otherwise.
func (c *Communicator) placedAlike() bool {
	a := &c.scratch
	symmetric := a.call.Symmetric
	a.call.Symmetric = false
	a.symmetric = c.endpoints.Symmetric.Mark(&a.call)
	for _, slot := range []plugin.Slot{plugin.SlotWindow, plugin.SlotOffset} {
		a.exec.Slots[slot] = a.call.Slots[slot]
	}
	return a.call.Symmetric == symmetric
}

// remember notes what again is to know: an operation that has been run, whose lengths follow from the count alone.
func (c *Communicator) remember(op *Operation, program *plans.Program) {
	switch op.Collective {
	case plugin.AllReduce, plugin.Reduce, plugin.AllGather, plugin.ReduceScatter, plugin.AllToAll, plugin.Gather,
		plugin.Scatter, plugin.Broadcast, plugin.Send, plugin.Recv, plugin.Barrier:
		c.latest = latest{shape{op.Collective, op.DType, op.Root, op.Count}, op.Op, op.Scalar, *program, true}
	}
}

// repeat counts an operation of host memory that has been run the long way, for a short form.
func (c *Communicator) repeat(op *Operation, call *call.Call, program *plans.Program) {
	switch op.Collective {
	case plugin.Broadcast, plugin.Send, plugin.Recv:
	default:
		return
	}
	r, now := c.repeatedOf(op), shape{op.Collective, op.DType, op.Root, op.Count}
	if r.shape != now {
		*r = repeated{shape: now}
	}
	if r.seen++; r.seen != quickAfter && (r.form == nil || !r.form.Stale()) {
		return
	}
	r.send, r.recv = uintptr(call.Slots[plugin.SlotSendBytes]), uintptr(call.Slots[plugin.SlotRecvBytes])
	r.element = uintptr(op.DType.Bytes())
	r.record = executor.RecordOf(uint32(call.Collective), uint32(call.DType), uint32(call.Op), call.Count,
		int32(call.Root))
	r.identity = call.Identity
	r.messages, r.message = c.ledger.Messages(call)
	r.compared = op.Collective != plugin.Recv || program.ComparesLengths
	r.form = program.Host.Quick(&c.scratch.exec)
}
