package faults

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/shunt-ccl/shunt/plugin"
)

// Ranks on different hosts share no memory, and their engine knows only that it waits. They tell each other what they
// have called: errors say which rank is in which call, and calls that differ end long before the deadline.
func TestRanksOfOtherHostsAreExplained(t *testing.T) {
	const absent, timeout = 1, 6 * time.Second
	for name, spec := range engines(t) {
		for instead, want := range map[string]struct {
			code plugin.Code
			text []string
		}{
			"another": {plugin.Mismatch, []string{"rank 1 called #3 all_gather, count 2 of uint8", "called #3 all_reduce, count 16"}},
			"nothing": {plugin.Timeout, []string{"that rank last told that it called #2 all_reduce, count 16"}},
			"refused": {plugin.Timeout, []string{"rank 1 refused its all_reduce: count -1 is negative"}},
			"closed":  {plugin.Closed, []string{"has closed the communicator while rank "}},
		} {
			t.Run(name+" "+instead, func(t *testing.T) {
				w := newWorld(t, 3)
				r := hostsRequest{request: w.meet(spec, timeout), Instead: instead}
				r.Absent = absent
				result := w.raw("faults hosts", r, time.Minute, nil)
				if err := result.Err(); err != nil {
					t.Fatal(err)
				}
				for rank, o := range result.Outcomes {
					var a reply
					assert.NoError(t, json.Unmarshal(o.Payload, &a))
					assert.Empty(t, a.Leaks, "rank %d", rank)
					if rank == absent && instead == "closed" {
						continue
					}
					assert.Equal(t, want.code, a.Code, "rank %d: %s", rank, a.Message)
					for _, text := range want.text {
						assert.Contains(t, a.Message, text, "rank %d", rank)
					}
					if want.code != plugin.Timeout {
						assert.Less(t, a.Took, timeout/2, "rank %d", rank)
					}
				}
			})
		}
	}
}
