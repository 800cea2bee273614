package faults

import (
	"testing"
	"time"
)

// course logs what a rank held as it went on, and what each communicator of the
// second half left: nothing, in a long soak.
func course(t *testing.T, rank int, a *reply) {
	t.Helper()
	for i, r := range a.Course {
		t.Logf("rank %d after %d communicators: %d KiB resident, %d KiB of them Go's, %d KiB of device memory free", rank,
			(i+1)*courseStep, r.RSS>>10, r.GoHeap>>10, r.DeviceFree>>10)
	}
	if n := len(a.Course); n > 1 {
		from, to, made := a.Course[(n-1)/2], a.Course[n-1], int64((n-1-(n-1)/2)*courseStep)
		left, device := (to.RSS-from.RSS)/made, (from.DeviceFree-to.DeviceFree)/made
		t.Logf("rank %d: each of the last %d left %d bytes of resident and %d of device memory", rank, made, left, device)
		if made >= 400 && !raceDetector && (left > residue || device > 0) {
			t.Errorf("rank %d: communicators leave memory", rank)
		}
	}
}

// flat fails when the second measurement of a soak exceeds the first.
func flat(t *testing.T, replies []*reply, growth int64) {
	t.Helper()
	for rank, a := range replies {
		t.Logf("rank %d: %d operations; %v, then %v", rank, a.Operations, a.Before, a.After)
		course(t, rank, a)
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

// heap is the growth of memory that is allowed in a soak of communicators. Growth of a few
// MiB does not depend on their number on host memory (-faults.communicators
// 4000).
const heap = 4 << 20

// deviceHeap is the same on GPUs, where heaps take longer to fill up: on rank 0, which
// has the store, for 900 communicators of 4 ranks. By then it has 10 MiB more than after
// 30, half of that Go's, and 7.5 after 300; the others have 5.
const deviceHeap = 12 << 20

// residue is the number of bytes that each communicator of a long soak's second half may
// leave; of 1500 on 4 GPUs they left 0.2 to 2.2 KiB each.
const residue = 8 << 10
