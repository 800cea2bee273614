package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// A message whose ends differ is an error on all ranks, which names both lengths, whatever ways messages so long go,
// eager and replayed. Afterwards the same processes make another communicator.
func TestMessagesOfDifferentLengthsOnDevices(t *testing.T) {
	size := devices(t, 2, 3)
	const short, long = 16 << 10, 4 << 20 // long messages are stored where their receiver offers
	w := newWorld(t, size)
	for _, lengths := range [][2]int64{{short, 2 * short}, {2 * short, short}, {4, 12}, {long, long + 4}, {2 * long, long},
		{short, long}, {long, short}} {
		for _, r := range []lengthsRequest{{}, {Captured: true}, {Varying: true},
			{Varying: true, Captured: true, Registered: true}, {Registered: true}} {
			r.request = onDevice.meet(w, time.Minute)
			r.Sent, r.Expected, r.Bytes = lengths[0], lengths[1], 64
			name := fmt.Sprintf("%d to %d, varying %v, captured %v, registered %v", r.Sent, r.Expected, r.Varying, r.Captured,
				r.Registered)
			allTold(t, name, w.raw("faults lengths", r, time.Minute, nil).Outcomes, time.Second, func(rank int, a *toldReply) {
				for _, text := range []string{fmt.Sprintf("rank 0 sends %d bytes", r.Sent),
					fmt.Sprintf("to rank 1, which expects %d", r.Expected)} {
					if a.Code != plugin.Mismatch || !strings.Contains(a.Message, text) {
						t.Errorf("%s: rank %d: no %q in %s: %s", name, rank, text, a.Code, a.Message)
					}
				}
			})
		}
	}
}
