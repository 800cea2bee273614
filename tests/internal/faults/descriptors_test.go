package faults

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
)

// Splits until descriptors run out, on one rank or on all: every rank returns the lack at the same split, within a
// round trip; no rank is taken for dead; and once communicators are closed the next split works.
func TestSplitsWithoutDescriptors(t *testing.T) {
	for _, limited := range []int{-1, 0, 2} {
		for spare := 26; spare < 26+14; spare++ { // wherever in a split it happens
			if *loops < 10 && spare%3 != 0 {
				continue // a quick run
			}
			t.Run(fmt.Sprintf("rank=%d/spare=%d", limited, spare), func(t *testing.T) {
				w := newWorld(t, 3)
				r := w.meet(builtin, time.Minute)
				r.Limited, r.Spare, r.Rounds = limited, spare, 60
				result := w.raw("faults splits", r, 30*time.Second, nil)
				if err := result.Err(); err != nil {
					t.Fatal(err)
				}
				made := -1
				for rank, o := range result.Outcomes {
					var s splitsReply
					if err := json.Unmarshal(o.Payload, &s); err != nil {
						t.Fatal(err)
					}
					if made < 0 {
						made = s.Made
					}
					f := s.Failed
					if f.Code != plugin.OutOfMemory || !strings.Contains(f.Message, "too many open files") || s.Made != made {
						t.Errorf("rank %d: %s after %d splits, rank 0 after %d: %s", rank, f.Code, s.Made, made, f.Message)
					}
					if limited >= 0 && !strings.Contains(f.Message, fmt.Sprintf("rank %d", limited)) {
						t.Errorf("rank %d: rank %d is not named: %s", rank, limited, f.Message)
					}
					if s.Took > soon {
						t.Errorf("rank %d: the split that failed took %v", rank, s.Took)
					}
					if s.After.Code != plugin.OK {
						t.Errorf("rank %d: a split later: %s: %s", rank, s.After.Code, s.After.Message)
					}
					if len(s.Leaks) > 0 {
						t.Errorf("rank %d still holds %v", rank, s.Leaks)
					}
				}
				// What shunt doctor tells, of the world's communicator too.
				if limited < 0 {
					if need := descriptors.OfCommunicators(3, made+1); spare < need-3 || spare > need+6 {
						t.Errorf("%d splits were made with %d descriptors; the estimate for them is %d", made, spare, need)
					}
				}
				w.close()
			})
		}
	}
}
