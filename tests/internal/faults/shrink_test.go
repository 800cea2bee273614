package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// shrink kills ranks in the given order while there is traffic, each at a
// random moment after the one before, and checks that the others continue.
func shrink(t *testing.T, random *rand.Rand, on place, size int, victims ...int) {
	t.Helper()
	shrinkWith(t, func(ctx context.Context, _ int) { moment(ctx, random) }, -1, on, size, victims...)
}

// shrinkWith is shrink with a pause of the caller's before each death, and a rank that
// may be late.
func shrinkWith(t *testing.T, pause func(ctx context.Context, death int), late int, on place, size int,
	victims ...int) {
	t.Helper()
	w := newWorld(t, size)
	r := on.meet(w, 20*time.Second)
	r.Late = late
	r.Left = size - len(victims)
	w.mustAsk("faults open", r, 30*time.Second)
	killed := make([]time.Time, len(victims))
	pids := make([]int, size)
	result := w.raw("faults shrink", r, 20*time.Second, func(ctx context.Context, processes []int) {
		copy(pids, processes)
		for i, victim := range victims {
			pause(ctx, i)
			killed[i] = time.Now()
			if err := unix.Kill(pids[victim], unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}
	})
	dead := map[int]bool{}
	for _, victim := range victims {
		dead[victim] = true
	}
	for rank, o := range result.Outcomes {
		if dead[rank] {
			continue
		}
		var s shrunk
		if o.Error != "" || json.Unmarshal(o.Payload, &s) != nil {
			t.Errorf("survivor %d: %s\n%s", rank, o.Error, o.Stderr)
			continue
		}
		if s.World != r.Left || len(s.Leaks) > 0 {
			t.Errorf("survivor %d: world %d, want %d; still holds %v", rank, s.World, r.Left, s.Leaks)
		}
		if len(s.Failures) == 0 || len(s.Failures) > len(victims) {
			t.Errorf("survivor %d: %d failures for %d deaths", rank, len(s.Failures), len(victims))
		}
		for i, f := range s.Failures {
			named := -1
			for k, victim := range victims {
				if strings.Contains(f.Message, fmt.Sprint(pids[victim])) {
					named = k
				}
			}
			if f.Code != plugin.PeerDied || named < 0 {
				t.Errorf("survivor %d: %s: %s", rank, f.Code, f.Message)
			} else if took := f.At.Sub(killed[named]); took > soon {
				t.Errorf("survivor %d: the error came after %v", rank, took)
			}
			t.Logf("survivor %d: heard after %v, shrunk within %v", rank,
				f.At.Sub(killed[max(named, 0)]).Round(time.Microsecond), s.Took[i].Round(time.Microsecond))
			if s.Took[i] > soon {
				t.Errorf("survivor %d: shrink took %v", rank, s.Took[i])
			}
		}
	}
	w.close()
}

// The communicator that the survivors have agreed on loses a rank before it was returned to one of them. All of them
// continue together all the same.
func TestShrinkWhenARankDiesRightAfterTheAgreement(t *testing.T) {
	for _, late := range []int{2, 3} {
		t.Run(fmt.Sprintf("late=%d", late), func(t *testing.T) {
			shrinkWith(t, func(ctx context.Context, death int) {
				timer := time.NewTimer(time.Duration(death) * lateness / 2)
				defer timer.Stop()
				select {
				case <-timer.C:
				case <-ctx.Done():
				}
			}, late, onHost, 4, 1, 0)
		})
	}
}

// The process of rank 0 runs the rendezvous store; the others do without it.
func TestShrinkAfterRankZeroDied(t *testing.T) {
	random := random(t)
	for _, size := range []int{3, 4} {
		t.Run(fmt.Sprintf("world=%d", size), func(t *testing.T) {
			for loop := range *loops {
				shrink(t, random, onHost, size, 0)
				if t.Failed() {
					t.Fatalf("loop %d", loop)
				}
			}
		})
	}
}

// The rank that takes the store over dies too, at any moment: while it does
// so, while the others shrink, or later; and so does any other rank.
func TestShrinkAfterRankZeroAndItsHeirDied(t *testing.T) {
	random := random(t)
	for loop := range *loops {
		for _, victims := range [][]int{{0, 1}, {1, 0}, {0, 2}, {0, 1, 2}} {
			shrink(t, random, onHost, 5, victims...)
			if t.Failed() {
				t.Fatalf("loop %d, ranks %v killed", loop, victims)
			}
		}
	}
}
