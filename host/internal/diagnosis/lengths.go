package diagnosis

import (
	"fmt"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// The two ends of a message on host memory give its length each. They must be alike: otherwise the receiver would get
// what was never sent, or the two would look for the message in different places and wait. Every rank notes how long
// its messages are where its peers can read it. Plans that move a message's length along with it stop where the lengths
// differ, as do ends that look in different places, and the watchdog compares the notes of ranks that wait. Behind all
// other plans the receiver compares as soon as a message has come.

// Unchecked are the messages of the operation in flight whose lengths only the host compares.
type Unchecked struct{ messages []received }

type received struct {
	peer    int
	number  uint64
	message executor.Message
}

// Add remembers a receive from a peer, the given number of theirs.
func (u *Unchecked) Add(peer int, number uint64, message executor.Message) {
	u.messages = append(u.messages, received{peer, number, message})
}

// Any reports whether there are any.
func (u *Unchecked) Any() bool { return len(u.messages) > 0 }

// Forget drops them, for an operation that has failed.
func (u *Unchecked) Forget() { u.messages = u.messages[:0] }

// Compare compares the messages, which have come, with what their senders say of them. The error names the first that
// is of another length.
func (u *Unchecked) Compare(o *Observer) (reason *plugin.Error) {
	for _, r := range u.messages {
		if sent, known := o.Engine.SentTo(r.peer, r.number); known && sent.Bytes() != r.message.Bytes() && reason == nil {
			reason = o.wrongLength(executor.Contradiction{Sender: r.peer, Receiver: o.Rank, Sent: sent, Expected: r.message})
		}
	}
	u.Forget()
	return reason
}

// WrongLength returns an error if the ends of a message differ in length, one that this rank waits for or that a peer
// does not take; nil otherwise.
func (o *Observer) WrongLength() *plugin.Error {
	for peer := range o.World {
		if peer == o.Rank {
			continue
		}
		if found, ok := o.Engine.Contradiction(peer); ok {
			return o.wrongLength(found)
		}
	}
	return nil
}

// wrongBytes words what a kernel of this rank has found of a message from a peer.
// Elements do not move with it.
func (o *Observer) wrongBytes(peer int, sent, expected uint64) *plugin.Error {
	return &plugin.Error{Code: plugin.Mismatch, Rank: o.Rank,
		Message: fmt.Sprintf("ranks disagree: rank %d sends %d bytes to rank %d, which expects %d", peer, sent, o.Rank,
			expected)}
}

// wrongLength words a contradiction, alike on both ends.
func (o *Observer) wrongLength(found executor.Contradiction) *plugin.Error {
	about := ""
	if mine := o.State(o.Rank); found.Kind == executor.Block && mine.Collective.Varying() {
		about = fmt.Sprintf(" about #%d %s", mine.Seq, mine.Collective)
	}
	return &plugin.Error{Code: plugin.Mismatch, Rank: found.Receiver,
		Message: fmt.Sprintf("ranks disagree%s: rank %d sends %d bytes of %s to rank %d, which expects %d of %s",
			about, found.Sender, found.Sent.Bytes(), found.Sent.DType(), found.Receiver, found.Expected.Bytes(),
			found.Expected.DType())}
}
