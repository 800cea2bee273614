package host

import (
	"fmt"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// The two ends of a message on host memory give its length each. They must be
// alike: otherwise the receiver would get what was never sent, or the two would look
// for the message in different places and wait. Every rank notes how long its
// messages are where its peers can read it. Plans that move a message's length along
// with it stop where it is another one, as do ends that look in different places,
// and the watchdog compares the notes of ranks that wait. Behind all other plans
// the receiver compares as soon as a message has come.

// received is a message that has begun, and that only the host compares.
type received struct {
	peer    int
	number  uint64
	message executor.Message
}

// messages are this rank's to or from the peer of a call, and what is noted of the
// call there; nil for what is no message.
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

// compareLater remembers a receive that is about to begin, if its plan does not
// compare.
func (c *Communicator) compareLater(call *call.Call, lengths bool) {
	if call.Collective == plugin.Recv && !lengths {
		m, message := c.messages(call)
		c.unchecked = append(c.unchecked, received{call.Root, m.Count(), message})
	}
}

// compareMessages compares the messages that have come with what their senders say
// of them, and fails the communicator if one is of another length.
func (c *Communicator) compareMessages() {
	for _, r := range c.unchecked {
		if sent, known := c.engine.SentTo(r.peer, r.number); known && sent.Bytes() != r.message.Bytes() {
			c.fail(c.wrongLength(executor.Contradiction{Sender: r.peer, Receiver: c.rank, Sent: sent, Expected: r.message}), true)
		}
	}
	c.unchecked = c.unchecked[:0]
}

// contradiction is the reason why a message that this rank waits for, or that a peer
// does not take, will not get through, if it is that its ends differ. It may be
// called from any goroutine.
func (c *Communicator) contradiction() *plugin.Error {
	for peer := range c.world {
		if peer == c.rank {
			continue
		}
		if found, ok := c.engine.Contradiction(peer); ok {
			return c.wrongLength(found)
		}
	}
	return nil
}

// wrongBytes words what a kernel of this rank has found of a message from a peer.
// Elements do not move with it.
func (c *Communicator) wrongBytes(peer int, sent, expected uint64) *plugin.Error {
	return &plugin.Error{Code: plugin.Mismatch, Rank: c.rank, Message: fmt.Sprintf("ranks disagree: rank %d sends %d bytes to rank %d, which expects %d", peer, sent, c.rank, expected)}
}

// wrongLength words a contradiction, alike on both ends.
func (c *Communicator) wrongLength(found executor.Contradiction) *plugin.Error {
	about := ""
	if mine := c.state(c.rank); found.Kind == executor.Block && mine.Collective.Varying() {
		about = fmt.Sprintf(" about #%d %s", mine.Seq, mine.Collective)
	}
	return &plugin.Error{Code: plugin.Mismatch, Rank: found.Receiver, Message: fmt.Sprintf("ranks disagree%s: rank %d sends %d bytes of %s to rank %d, which expects %d of %s",
		about, found.Sender, found.Sent.Bytes(), found.Sent.DType(), found.Receiver, found.Expected.Bytes(), found.Expected.DType())}
}
