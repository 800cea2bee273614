package faults

import (
	"testing"
	"time"
)

// flat fails when the second measurement of a soak exceeds the first.
func flat(t *testing.T, answers []*answer, growth int64) {
	t.Helper()
	for rank, a := range answers {
		t.Logf("rank %d: %d operations; %v, then %v", rank, a.Operations, a.Before, a.After)
		if more := a.After.Since(a.Before); len(more) > 0 {
			t.Errorf("rank %d holds more: %v", rank, more)
		}
		if grown := a.After.RSS - a.Before.RSS; grown > growth && !raceDetector {
			t.Errorf("rank %d: resident memory grew by %d KiB", rank, grown>>10)
		}
		if a.After.Threads > a.Before.Threads+4 {
			t.Errorf("rank %d: %d threads, then %d", rank, a.Before.Threads, a.After.Threads)
		}
		if len(a.Leaks) > 0 {
			t.Errorf("rank %d still holds %v", rank, a.Leaks)
		}
	}
}

func TestSoakChangingSplits(t *testing.T) {
	w := newWorld(t, 4)
	r := w.meet(builtin, 30*time.Second)
	r.Rounds, r.Bytes = *calls, 64<<10
	flat(t, w.mustAsk("faults soak calls", r, time.Duration(*calls)*20*time.Millisecond+time.Minute), 1<<20)
}

func TestSoakCommunicators(t *testing.T) {
	w := newWorld(t, 3)
	r := w.meet(builtin, 30*time.Second)
	r.Rounds = *comms
	flat(t, w.mustAsk("faults soak communicators", r, time.Duration(*comms)*time.Second+time.Minute), heap)
}

// heap is how far memory may grow in a soak of communicators. Growth of a few
// MiB does not depend on their number on host memory (-faults.communicators
// 4000); on GPUs 2.6 to 3.2 MiB in 30 were seen, and no more than 30 were run.
const heap = 4 << 20
