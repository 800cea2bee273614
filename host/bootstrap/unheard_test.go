package bootstrap

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// A rank that waits for survivors no longer names those that others still wait for: those that have not come, and those
// that do not reply whether they take part. It names neither itself nor ranks that have closed the group.
func TestTimeoutsOfSurvivorsNameTheRanksThatAreMissing(t *testing.T) {
	for name, c := range map[string]struct {
		call, reply, close []int // ranks that do
		missing            string
	}{
		"one does not come":          {call: []int{1, 3, 4}, missing: "rank 2 (pid 102 on host host)"},
		"one has closed the group":   {call: []int{1, 3}, close: []int{4}, missing: "rank 2 (pid 102 on host host)"},
		"one does not reply":         {call: []int{1, 2, 3, 4}, reply: []int{1, 3, 4}, missing: "rank 2 (pid 102 on host host)"},
		"the one that waits neither": {call: []int{1, 2, 3, 4}, reply: []int{1, 4}, missing: "rank 2 (pid 102 on host host)"},
		"only the one that waits":    {call: []int{1, 2, 3, 4}, reply: []int{1, 2, 4}},
		"two do not reply": {call: []int{1, 2, 3, 4}, reply: []int{3},
			missing: "rank 1 (pid 101 on host host), rank 2 (pid 102 on host host), rank 4 (pid 104 on host host)"},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUnderstudyWith(t, 5, map[int]standing{0: {Left, nil}})
			st, ends := u.root.store, map[int]*frameConn{}
			say := func(rank int, m *message) { require.NoError(t, ends[rank].write(m.frame())) }
			for rank := 1; rank < 5; rank++ {
				ends[rank] = u.comes(takesInFrom{takesIn{st}}, u.hello(rank))
				require.NoError(t, ends[rank].limitReads(30*time.Second))
				u.expect(ends[rank], msgWelcome)
				say(rank, &message{Kind: msgGroup, Group: 7, Key: "g", Ranks: []int{0, 1, 2, 3, 4}})
				say(rank, &message{Kind: msgResumed})
			}
			for _, rank := range c.close {
				say(rank, &message{Kind: msgUngroup, Group: 7})
			}
			for _, rank := range c.call {
				say(rank, &message{Kind: msgOp, Group: 7, Op: opSurvivors, Tag: "meet", Data: []byte{1}})
			}
			for _, rank := range c.reply {
				say(rank, &message{Kind: msgPong, Seq: u.expect(ends[rank], msgPing).Seq})
			}
			require.Eventually(t, func() bool { // the store has read all that
				st.mu.Lock()
				defer st.mu.Unlock()
				if len(st.groups["g"]) == 0 || st.groups["g"][0].pending["meet"] == nil {
					return false
				}
				g := st.groups["g"][0]
				pending := g.pending["meet"]
				return pending.count == len(c.call) && len(g.parted) == len(c.close) &&
					!slices.ContainsFunc(c.reply, func(rank int) bool { return st.members[rank].round < pending.round })
			}, 30*time.Second, time.Millisecond)
			mine := rankError(plugin.Timeout, 3, "rank 3 waited")
			say(3, &message{Kind: msgCancel, Group: 7, Tag: "meet", Err: mine})
			want := *mine
			if c.missing != "" {
				want.Message += ", still without " + c.missing
				want.Rank = int(c.missing[len("rank ")] - '0')
			}
			for _, rank := range c.call {
				if len(c.call) == 4 && !slices.Contains(c.reply, rank) {
					u.expect(ends[rank], msgPing)
				}
				require.Equal(t, &want, u.expect(ends[rank], msgResult).Err, "rank %d", rank)
			}
		})
	}
}
