package diagnosis

import (
	"fmt"

	"github.com/shunt-ccl/shunt/host/executor"
)

// Refusal is what a rank's control page says of the last call that it refused by
// itself: nothing came of it, and peers that made the call wait until that rank
// makes it as it should be, or for good. Every field came from another process and
// may hold anything, but Text is printable and bounded.
type Refusal = executor.Refusal

// rejected words a refusal of a rank for the message of one that waits, or of one
// that found a contradiction. "" is that it explains nothing: the rank has come to
// the same collective since, or the refusal was of a later one.
func rejected(rank int, refusal Refusal, mine, theirs State) string {
	if !refusal.Valid {
		return ""
	}
	last := refusal.Since == 0 || (refusal.Since == 1 && theirs.HasClosed()) // it has done nothing since, or closed
	if !last {
		return ""
	}
	behind := !theirs.Valid || theirs.HasClosed() || int64(theirs.Seq-mine.Seq) < 0
	switch {
	case !mine.Valid || mine.Collective.PointToPoint():
	case refusal.Seq != 0 && refusal.Seq <= mine.Seq:
	case refusal.Seq == 0 && behind:
	default:
		return ""
	}
	return fmt.Sprintf("rank %d refused its %s", rank, refusal.Text)
}

// rejectedBefore words a refusal that a rank has gone on from. Whoever skips a call
// that the others make is off by one from then on, which shows only later: when
// the ranks' calls contradict each other, or when the rank has closed.
func rejectedBefore(rank int, refusal Refusal, mine State) string {
	if !refusal.Valid || refusal.Since == 0 || refusal.Seq == 0 || refusal.Seq > mine.Seq {
		return ""
	}
	return fmt.Sprintf("rank %d had refused its call #%d, %s", rank, refusal.Seq, refusal.Text)
}
