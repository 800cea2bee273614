package host

import (
	"fmt"
	"strings"
	"time"

	"github.com/shunt-ccl/shunt/host/watch"
	"github.com/shunt-ccl/shunt/plugin"
)

// A call that a rank refuses for its arguments has not happened: the communicator
// stays as good as it was, and the rank may make the call as it should be. But its
// peers have made theirs and wait. So it notes in its control page what it has
// refused, and whoever waits for it, or finds it closed, dead or off by one, can
// say why.

// maxExcuses is how many ranks' refusals one message names.
const maxExcuses = 4

// refused notes that this rank has refused an operation, which gets no number, and
// returns err. It is on the path of errors alone.
func (c *Communicator) refused(collective plugin.Collective, err error) error {
	seq := uint64(0)
	if !collective.PointToPoint() {
		seq = c.collectives + 1
	}
	c.refuse(seq, collective.String(), err)
	return err
}

// refusedCall is refused for a call that is no operation.
func (c *Communicator) refusedCall(what string, err error) error {
	c.refuse(0, what, err)
	return err
}

func (c *Communicator) refuse(seq uint64, what string, err error) {
	if c.failure.Load() != nil {
		return // the peers have the reason
	}
	c.engine.Refuse(seq, what+": "+strings.TrimPrefix(err.Error(), fmt.Sprintf("%s on rank %d: ", what, c.rank)))
}

// circumstance is one in which refusals may explain something.
type circumstance int

const (
	absence   circumstance = iota // for ranks that do not come
	agreement                     // likewise, in a call that is no operation
	quarrel                       // ranks' calls contradict each other, or one has closed
)

// refusals words what ranks have refused, as far as it may explain what has come
// of the call that this rank is in, to be put behind a message; "" if nothing does.
func (c *Communicator) refusals(in circumstance) string {
	var text strings.Builder
	named, more := 0, 0
	mine := c.state(c.rank)
	if in == agreement {
		mine = watch.State{}
	}
	for rank := range c.world {
		refusal := c.engine.PeerRefusal(rank)
		if !refusal.Valid {
			continue
		}
		theirs := c.state(rank)
		clause := watch.Refused(rank, refusal, mine, theirs)
		if clause == "" && (in == quarrel || theirs.HasClosed()) {
			clause = watch.RefusedBefore(rank, refusal, mine)
		}
		switch {
		case clause == "":
		case named == maxExcuses:
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

// refusalOf is the last thing that a rank which is gone has refused, to be put
// behind a message; "" if it went on since.
func (c *Communicator) refusalOf(rank int) string {
	if text := watch.Refused(rank, c.engine.PeerRefusal(rank), watch.State{}, c.state(rank)); text != "" {
		return "; " + text
	}
	return ""
}

// refusalLook is what the watchdog has seen of refusals that keep this rank's
// operations waiting. It is the watchdog's alone.
type refusalLook struct {
	text   string
	since  time.Time
	warned bool
}

// lookAtRefusals warns when a peer has refused what this rank has enqueued, and has
// done nothing since for the given time. It is for operations on a GPU, of which
// the host does not see that they wait.
func (c *Communicator) lookAtRefusals(stall time.Duration) {
	look, text := &c.refusalLook, c.refusals(absence)
	if text != look.text {
		*look = refusalLook{text: text, since: time.Now()}
	}
	if text == "" || look.warned || time.Since(look.since) < stall {
		return
	}
	look.warned = true
	mine := c.state(c.rank)
	c.logger.Warn("a call was refused", "communicator", c.label, "rank", c.rank, "seq", mine.Seq, "collective", mine.Collective.String(), "refused", strings.TrimPrefix(text, "; "))
}
