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

// A message whose ends differ is an error on all ranks, which names both lengths,
// whatever ways messages so long go, eager and replayed. Afterwards the same processes
// go on with another communicator.
func TestMessagesOfDifferentLengthsOnDevices(t *testing.T) {
	size := devices(t, 2, 3)
	const short, long = 16 << 10, 4 << 20 // long messages are stored where their receiver offers
	w := newWorld(t, size)
	for _, lengths := range [][2]int64{{short, 2 * short}, {2 * short, short}, {4, 12}, {long, long + 4}, {2 * long, long}, {short, long}, {long, short}} {
		for _, r := range []lengthsRequest{{}, {Captured: true}, {Varying: true}, {Varying: true, Captured: true, Registered: true}, {Registered: true}} {
			r.request = onDevice.meet(w, time.Minute)
			r.Sent, r.Expected, r.Bytes = lengths[0], lengths[1], 64
			name := fmt.Sprintf("%d to %d, varying %v, captured %v, registered %v", r.Sent, r.Expected, r.Varying, r.Captured, r.Registered)
			result := w.raw("faults lengths", r, time.Minute, nil)
			for rank, o := range result.Outcomes {
				var a lengthsAnswer
				if o.Error != "" || json.Unmarshal(o.Payload, &a) != nil {
					t.Fatalf("%s: rank %d: %s\n%s", name, rank, o.Error, o.Stderr)
				}
				for _, text := range []string{fmt.Sprintf("rank 0 sends %d bytes", r.Sent), fmt.Sprintf("to rank 1, which expects %d", r.Expected)} {
					if a.Code != plugin.Mismatch || !strings.Contains(a.Message, text) {
						t.Errorf("%s: rank %d: no %q in %s: %s", name, rank, text, a.Code, a.Message)
					}
				}
				limit := soon
				if machine.Real() {
					limit = time.Second
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
