package diagnosis

import (
	"fmt"

	"github.com/shunt-ccl/shunt/host/report"
	"github.com/shunt-ccl/shunt/plugin"
)

// Closed stands in State.Collective for a communicator that its rank closed.
const Closed plugin.Collective = 0xFFFF

// State is the content of a rank's control page: what the rank is doing. Every field
// came from another process and may hold anything.
type State struct {
	Valid      bool   // false: it has called nothing, has told of nothing, or its page cannot be read
	Ended      bool   // the call has ended on that rank
	Seq        uint64 // collectives called so far, this one included
	Collective plugin.Collective
	DType      plugin.DType
	Op         plugin.Op
	Count      int64
	Root       int
	Symmetric  bool // its receive memory is registered as symmetric

	DeviceCounts bool // its counts are in device memory
}

func (s State) String() string {
	if !s.Valid {
		return "has called nothing yet"
	}
	if s.Collective == Closed {
		return "has closed the communicator"
	}
	what := fmt.Sprintf("#%d %s", s.Seq, s.Collective)
	if s.Collective.PointToPoint() {
		what = fmt.Sprintf("%s (after #%d)", report.Message(s.Collective, s.Root), s.Seq)
	}
	text := fmt.Sprintf("called %s, count %d of %s", what, s.Count, s.DType)
	if s.Collective.Reduces() {
		text += ", op " + s.Op.String()
	}
	if s.Collective.Rooted() {
		text += fmt.Sprintf(", root %d", s.Root)
	}
	if s.Symmetric {
		text += ", symmetric"
	}
	if s.DeviceCounts {
		text += ", counts on the device"
	}
	return text
}

// HasClosed reports whether a rank has closed the communicator, so that nothing
// more comes from it.
func (s State) HasClosed() bool { return s.Valid && s.Collective == Closed }

// Collectives returns the number of collectives that the rank has called.
func (s State) Collectives() uint64 {
	switch {
	case !s.Valid:
		return 0
	case s.HasClosed(): // which takes a number
		return s.Seq - 1
	}
	return s.Seq
}

// sends says whether a send to another is the last that the rank has called; it may have ended, which is not seen.
func (s State) sends(to int) bool { return s.Valid && s.Collective == plugin.Send && s.Root == to }

// PassedBy says that a rank is in a later collective than the one in which others wait for it, or returns "" if it is
// not. A rank that ends a collective has sent all that others wait for, so the two called different ones. What the rank
// sent last may still be on its way: only a second look is proof.
func PassedBy(rank int, mine State, peer int, theirs State) string {
	if !mine.Valid || !theirs.Valid || mine.Collective.PointToPoint() || theirs.Collective == Closed ||
		int64(theirs.Seq-mine.Seq) <= 0 {
		return ""
	}
	return fmt.Sprintf("ranks disagree: rank %d %s and waits for rank %d, which has gone on: it %s", rank, mine, peer,
		theirs)
}

// WaitsForNetwork names what ranks of two hosts wait for where each has done its part: their call, or what a rank that
// has gone on to a later call has sent. It returns "" if a rank has not.
func WaitsForNetwork(rank int, mine State, peer int, theirs State) string {
	switch {
	case mine == theirs && mine.Valid:
		return "their call"
	case PassedBy(rank, mine, peer, theirs) != "":
		return fmt.Sprintf("what rank %d sent", peer)
	}
	return ""
}

// Disagree words two calls of one number that cannot both be right. Where they read
// alike they differ in counts for each rank, or in a call before those that are kept.
func Disagree(rank int, mine State, peer int, theirs State) string {
	// The lower rank comes first, so that both ranks say the same.
	if rank > peer {
		rank, mine, peer, theirs = peer, theirs, rank, mine
	}
	if text := Conflict(rank, mine, peer, theirs); text != "" {
		return text
	}
	if mine.Collective.Varying() {
		return fmt.Sprintf("ranks disagree: rank %d and rank %d called #%d %s with different counts", rank, peer, mine.Seq,
			mine.Collective)
	}
	return fmt.Sprintf("ranks disagree: rank %d and rank %d called different collectives before #%d", rank, peer, mine.Seq)
}

// Conflict says how two ranks' calls contradict each other, or "" if they may
// both be right. Only equal sequence numbers are compared: a rank that is
// behind may yet catch up.
func Conflict(rank int, mine State, peer int, theirs State) string {
	if !mine.Valid || !theirs.Valid || mine.Seq != theirs.Seq || mine.Collective.PointToPoint() ||
		theirs.Collective.PointToPoint() || theirs.Collective == Closed {
		return ""
	}
	if mine.Collective == theirs.Collective {
		same := mine.DType == theirs.DType && mine.Symmetric == theirs.Symmetric &&
			mine.DeviceCounts == theirs.DeviceCounts && (mine.Op == theirs.Op || !mine.Collective.Reduces()) &&
			(mine.Root == theirs.Root || !mine.Collective.Rooted()) &&
			(mine.Count == theirs.Count || mine.Collective.Varying())
		if same {
			return ""
		}
	}
	return fmt.Sprintf("ranks disagree: rank %d %s; rank %d %s", rank, mine, peer, theirs)
}
