package diagnosis

import (
	"fmt"
	"strings"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// A call that a rank rejects for its arguments has not happened: the communicator stays as good as it was, and the rank
// may make the call as it should be. But its peers have made theirs and wait. So it notes in its control page what it
// has rejected, and a rank that waits for it, or finds it closed, dead or off by one, can say why.

// maxNamed is the most ranks whose rejected calls one message names.
const maxNamed = 4

// Reject notes that this rank has rejected a call with an error, which it returns. seq is the number that the call
// would have had among the collectives; 0 if it is none. It is on the path of errors alone.
func (o *Observer) Reject(seq uint64, what string, err error) error {
	if o.Failure.Reason() == nil { // else the peers have the reason
		o.Engine.RejectCall(seq, what+": "+strings.TrimPrefix(err.Error(), fmt.Sprintf("%s on rank %d: ", what, o.Rank)))
	}
	return err
}

// Invalid rejects a call that is no operation for its arguments.
func (o *Observer) Invalid(what, format string, args ...any) error {
	return o.Reject(0, what, plugin.Errorf(plugin.InvalidArgument, "%s on rank %d: "+format,
		append([]any{what, o.Rank}, args...)...))
}

// circumstance is one in which rejected calls may explain something.
type circumstance int

const (
	absence       circumstance = iota // for ranks that do not come
	agreement                         // likewise, in a call that is no operation
	contradiction                     // ranks' calls contradict each other, or one has closed
)

// rejections words what ranks have rejected, as far as it may explain what has come of the call that this rank is in,
// to be put behind a message; "" if nothing does.
func (o *Observer) rejections(in circumstance) string {
	if o.Engine == nil { // this rank could not make it, and has no control pages
		return ""
	}
	var text strings.Builder
	named, more := 0, 0
	mine, equal := o.State(o.Rank), o.allRejected()
	if in == agreement {
		mine = State{}
	}
	for rank := range o.World {
		rejection := o.Engine.PeerRejection(rank)
		if !rejection.Valid {
			continue
		}
		theirs := o.State(rank)
		clause := rejected(rank, rejection, mine, theirs)
		if clause == "" && !equal && (in == contradiction || theirs.HasClosed()) {
			clause = rejectedBefore(rank, rejection, mine)
		}
		switch {
		case clause == "":
		case named == maxNamed:
			more++
		default:
			named++
			text.WriteString("; " + clause)
		}
	}
	if more > 0 {
		fmt.Fprintf(&text, "; so did %d more ranks with calls of theirs", more)
	}
	return text.String()
}

// allRejected says whether every rank has rejected the same call last: none of them is off by it.
func (o *Observer) allRejected() bool {
	seq := o.Engine.PeerRejection(o.Rank).Seq
	for rank := range o.World {
		if r := o.Engine.PeerRejection(rank); !r.Valid || r.Seq == 0 || r.Seq != seq {
			return false
		}
	}
	return true
}

// RejectedBy returns the last thing that a rank which is gone has rejected, to be put behind a message; "" if it went
// on since.
func (o *Observer) RejectedBy(rank int) string {
	if text := rejected(rank, o.Engine.PeerRejection(rank), State{}, o.State(rank)); text != "" {
		return "; " + text
	}
	return ""
}

// PeerLost returns the failure of a rank that is gone, numbered as in this communicator: what is known of its end,
// and what its control page, which outlives it, says to explain it. jobRank is its number in the job.
func (o *Observer) PeerLost(rank, jobRank int, failure *plugin.Error) *plugin.Error {
	message := failure.Message
	if rank != jobRank {
		message = fmt.Sprintf("rank %d of %s is gone: %s", rank, o.Label, message)
	}
	message += o.RejectedBy(rank)
	if found, ok := o.Engine.Contradiction(rank); ok {
		message += "; " + o.wrongLength(found).Message
	}
	if message == failure.Message {
		return failure
	}
	return &plugin.Error{Code: failure.Code, Rank: rank, Cause: failure, Message: message}
}

// rejected words the call that a rank rejected last, for the message of one that waits, or of one that found a
// contradiction. It is empty where it explains nothing: the rank has called the same collective since, or it was a
// later one. The fields of a rejection came from another process and may hold anything, but its text is printable and
// bounded.
func rejected(rank int, rejection executor.Rejection, mine, theirs State) string {
	if !rejection.Valid {
		return ""
	}
	last := rejection.Since == 0 || (rejection.Since == 1 && theirs.HasClosed()) // it has done nothing since, or closed
	if !last {
		return ""
	}
	behind := !theirs.Valid || theirs.HasClosed() || int64(theirs.Seq-mine.Seq) < 0
	switch {
	case !mine.Valid || mine.Collective.PointToPoint():
	case rejection.Seq != 0 && rejection.Seq <= mine.Seq:
	case rejection.Seq == 0 && behind:
	default:
		return ""
	}
	return fmt.Sprintf("rank %d refused its %s", rank, rejection.Text)
}

// rejectedBefore words a rejected call that a rank has gone on from. A rank that skips a call which the others make is
// off by one from then on, which shows only later: when the ranks' calls contradict each other, or when the rank has
// closed.
func rejectedBefore(rank int, rejection executor.Rejection, mine State) string {
	if !rejection.Valid || rejection.Since == 0 || rejection.Seq == 0 || rejection.Seq > mine.Seq {
		return ""
	}
	return fmt.Sprintf("rank %d had refused its call #%d, %s", rank, rejection.Seq, rejection.Text)
}
