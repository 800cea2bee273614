package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Invalid counts in device memory are an error on all ranks, which says whose and which, eager and replayed. Afterwards
// the same processes make another communicator.
func TestImpossibleCountsOnDevices(t *testing.T) {
	size := devices(t, 2, 4)
	const short, long = 1000, 600_000 // long messages are stored where their receiver offers
	w := newWorld(t, size)
	for wrong, what := range impossible {
		for i, elements := range []int64{short, long} {
			for _, captured := range []bool{false, true} {
				r := countsRequest{request: onDevice.meet(w, time.Minute), Elements: elements, Wrong: wrong,
					Who: (wrong + i) % size, Captured: captured}
				r.Bytes = 64
				name := fmt.Sprintf("%s on rank %d, messages of %d, captured %v", what.name, r.Who, elements, captured)
				text := fmt.Sprintf("counts in device memory on rank %d: %s", r.Who,
					what.text(r.Who, elements, elements*int64(size)))
				allTold(t, name, w.raw("faults counts", r, time.Minute, nil).Outcomes, 500*time.Millisecond,
					func(rank int, a *toldReply) {
						if a.Code != plugin.InvalidArgument || a.Rank != r.Who || !strings.Contains(a.Message, text) {
							t.Errorf("%s: rank %d: no %q in %s: %s", name, rank, text, a.Code, a.Message)
						}
					})
			}
		}
	}
}
