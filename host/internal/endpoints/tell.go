package endpoints

import (
	"bytes"
	"time"

	"github.com/shunt-ccl/shunt/host/executor"
)

// Ranks of one host read each other's control pages. To those of other hosts a rank tells what its page says, over the
// rendezvous, when its call has stayed the same for a while: it waits, computes, or is idle. So a rank that waits
// learns what the others have called, and contradictions are found, while a program that makes progress sends nothing.

// rest is how long a rank's calls have not changed when it tells of them.
const rest = 500 * time.Millisecond

// mostTold bounds what the store passes on in a communicator, in bytes per second.
const mostTold = 8 << 20

// pauseOf returns the shortest time between two reports of a rank.
func pauseOf(world int) time.Duration {
	return max(rest, time.Duration(world*world*executor.ReportBytes)*time.Second/mostTold)
}

// NewsTakes returns within which time ranks on other hosts know of a call, where all call Tell that often: the look
// that sees it first, the pause, the look that sends it, and the peers' look that receives it. One more is for looks
// that come late.
func NewsTakes(world int, lookout time.Duration) time.Duration { return pauseOf(world) + 4*lookout }

// telling remembers what a rank has told its peers on other hosts.
type telling struct {
	report, told []byte    // of the last look; what was sent last
	since, at    time.Time // when report was seen first; when told was sent
}

// due reports whether a rank tells its peers of a report now. It is nil once the executor is closed.
func (t *telling) due(report []byte, now time.Time, pause time.Duration) bool {
	if report == nil {
		return false
	}
	if !bytes.Equal(report, t.report) {
		t.report, t.since = report, now
	}
	if now.Sub(t.since) < rest || now.Sub(t.at) < pause || bytes.Equal(report, t.told) {
		return false
	}
	t.told, t.at = report, now
	return true
}

// Tell receives what ranks on other hosts have called, and sends them this rank's calls if these have stayed the same
// for a while. It is the goroutine's that looks at stalls.
func (s *Set) Tell() {
	if !s.abroad.Load() {
		return
	}
	for rank, report := range s.Group.Told() {
		if !s.Topology.SameHost(s.Rank, rank) {
			s.Engine.SetReport(rank, report)
		}
	}
	if report := s.Engine.Report(); s.telling.due(report, time.Now(), pauseOf(s.World)) {
		_ = s.Group.Tell(report) // which is not too long
	}
}

// TellAtOnce tells ranks on other hosts what this rank's control page says. It may be called from any goroutine.
func (s *Set) TellAtOnce() {
	if s.abroad.Load() {
		_ = s.Group.Tell(s.Engine.Report()) // likewise
	}
}
