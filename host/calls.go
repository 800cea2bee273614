package host

import (
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// What a rank tells its peers of its calls while they run: records in its control page, and the lengths of messages and
// blocks. What follows from what peers tell is diagnosis's.

// publish puts the operation into this rank's control page, where peers' watchdogs read it.
func (c *Communicator) publish(call *call.Call) {
	c.engine.Record(c.sequence.Collectives, c.sequence.Number, uint32(call.Collective), call.RecordedType(),
		uint32(call.Op), call.Count, int32(call.Root))
	if !call.Collective.PointToPoint() {
		c.engine.Mark(c.sequence.Mark)
	}
}

// takeBack takes the number back from a collective that has not begun after all.
func (c *Communicator) takeBack(collective plugin.Collective) {
	if !collective.PointToPoint() {
		c.sequence.TakeBack()
		c.engine.ForgetCall(c.sequence.Mark)
	}
}

// messages returns this rank's messages to or from the peer of a call, and what is noted of the call there; nil if the
// call is no message.
func (c *Communicator) messages(call *call.Call) (*executor.Messages, executor.Message) {
	message := call.Message()
	switch call.Collective {
	case plugin.Send:
		return c.engine.Sent(executor.Single, call.Root), message
	case plugin.Recv:
		return c.engine.Received(executor.Single, call.Root), message
	}
	return nil, 0
}

// noteBlocks notes what this rank gives to and expects from each rank, in collectives with a count for each.
func (c *Communicator) noteBlocks(call *call.Call) {
	call.Blocks(c.rank, c.world, func(peer int, sends bool, bytes int64) {
		blocks := c.engine.Received(executor.Block, peer)
		if sends {
			blocks = c.engine.Sent(executor.Block, peer)
		}
		blocks.Note(executor.MessageOf(bytes, call.DType))
		blocks.Begun()
	})
}

// compareLater remembers a receive that is about to begin, if its plan does not compare.
func (c *Communicator) compareLater(call *call.Call, lengths bool) {
	if call.Collective == plugin.Recv && !lengths {
		m, message := c.messages(call)
		c.unchecked.Add(call.Root, m.Count(), message)
	}
}

// compareCalls looks whether a rank has called another collective than this one, and fails the communicator if so. It
// may be called from any goroutine.
func (c *Communicator) compareCalls() {
	if c.observer.Failure.Reason() == nil {
		c.failFor(c.observer.Disagreement())
	}
}

// compareAfter compares a call that has ended, where nothing in its plan did, with what the peers say they have called.
func (c *Communicator) compareAfter() {
	if c.observer.Contradicts(c.sequence.Mark) {
		c.compareCalls()
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
	c.failFor(c.watchdog.LookAtStall(&c.observer, c.plans.Stall))
}
