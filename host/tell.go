package host

import (
	"bytes"
	"time"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/job"
)

// Ranks of one host read each other's control pages. To those of other hosts a rank tells what its page says, over the
// rendezvous, when its calls have come to rest: it waits, computes, or is idle. So whoever waits learns what the others
// have called, and contradictions are found, while a program that makes progress sends nothing.

// rest is how long a rank's calls have not changed when it tells of them.
const rest = 500 * time.Millisecond

// mostTold bounds what the store passes on in a communicator, in bytes per second.
const mostTold = 8 << 20

// pauseOf returns the shortest time between two reports of a rank.
func pauseOf(world int) time.Duration {
	return max(rest, time.Duration(world*world*executor.ReportBytes)*time.Second/mostTold)
}

// newsTakes returns within which time ranks on other hosts know of a call: the look that sees it first, the pause, the
// look that tells of it, and theirs that hears of it. One more is for looks that come late.
func newsTakes(world int) time.Duration { return pauseOf(world) + 4*job.Lookout }

// telling is what a rank has told its peers on other hosts. It is the goroutine's that looks at stalls.
type telling struct {
	report, told []byte    // of the last look; what was told last
	since, at    time.Time // when report was seen first; when told was
}

// tell hears what ranks on other hosts have called, and tells them of this rank's calls if these have come to rest.
func (c *Communicator) tell() {
	if !c.endpoints.Abroad() {
		return
	}
	t := &c.telling
	for rank, report := range c.group.Told() {
		if !c.observer.Topology.SameHost(c.rank, rank) {
			c.engine.SetReport(rank, report)
		}
	}
	now, report := time.Now(), c.engine.Report()
	if report == nil { // it is closed
		return
	}
	if !bytes.Equal(report, t.report) {
		t.report, t.since = report, now
	}
	pause := pauseOf(c.world)
	if now.Sub(t.since) < rest || now.Sub(t.at) < pause || bytes.Equal(report, t.told) {
		return
	}
	t.told, t.at = report, now
	_ = c.group.Tell(report) // which is not too long
}
