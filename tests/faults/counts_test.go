package faults

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/device/machine"
)

// Counts in device memory that cannot be are an error on all ranks, which says whose
// and which, eager and replayed. Afterwards the same processes go on with another
// communicator.
func TestImpossibleCountsOnDevices(t *testing.T) {
	size := devices(t, 2, 4)
	const short, long = 1000, 600_000 // long messages are stored where their receiver offers
	w := newWorld(t, size)
	for wrong, what := range impossible {
		for i, elements := range []int64{short, long} {
			for _, captured := range []bool{false, true} {
				r := countsRequest{request: onDevice.meet(w, time.Minute), Elements: elements, Wrong: wrong, Who: (wrong + i) % size, Captured: captured}
				r.Bytes = 64
				name := fmt.Sprintf("%s on rank %d, messages of %d, captured %v", what.name, r.Who, elements, captured)
				result := w.raw("faults counts", r, time.Minute, nil)
				for rank, o := range result.Outcomes {
					var a countsAnswer
					if o.Error != "" || json.Unmarshal(o.Payload, &a) != nil {
						t.Fatalf("%s: rank %d: %s\n%s", name, rank, o.Error, o.Stderr)
					}
					text := fmt.Sprintf("counts in device memory on rank %d: %s", r.Who, what.text(r.Who, elements, elements*int64(size)))
					if a.Code != plugin.InvalidArgument || a.Rank != r.Who || !strings.Contains(a.Message, text) {
						t.Errorf("%s: rank %d: no %q in %s: %s", name, rank, text, a.Code, a.Message)
					}
					limit := soon
					if machine.Real() {
						limit = 500 * time.Millisecond
					}
					if took := a.At.Sub(a.Began); took > limit {
						t.Errorf("%s: rank %d: the error came after %v", name, rank, took)
					}
					if len(a.Leaks) > 0 {
						t.Errorf("%s: rank %d still holds %v", name, rank, a.Leaks)
					}
					closing(t, rank, &a.answer)
				}
				if t.Failed() {
					return
				}
			}
		}
	}
}
