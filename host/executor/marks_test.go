package executor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// A rank that remembers more calls than its page has finds the one that a peer far behind made otherwise, and nothing
// in those that are alike, also where it has taken back calls, whose numbers others then had.
func TestRememberedCallsAreCompared(t *testing.T) {
	const kept, ahead = 256, 1000
	hash := func(seq uint64) uint64 { return 77 * seq }
	a, b := abroad(t)
	a.RememberCalls(kept)
	for seq := uint64(1); seq <= ahead; seq++ {
		for range seq % 3 {
			called(a, seq, hash(seq)+1, plugin.Broadcast, 3)
			a.ForgetCall(MarkOf(seq, hash(seq)+1))
		}
		called(a, seq, hash(seq), plugin.AllReduce, int64(seq))
		behind := seq - min(seq-1, kept-64)
		for _, peer := range []uint64{behind, seq} {
			called(b, peer, hash(peer), plugin.AllReduce, int64(peer))
			a.SetReport(1, b.Report())
			_, found := a.Disagreement(1, seq)
			require.False(t, found, "%d of %d", peer, seq)
		}
		called(b, behind, hash(behind)+1, plugin.AllGather, int64(behind))
		a.SetReport(1, b.Report())
		d, found := a.Disagreement(1, seq)
		require.True(t, found, "%d of %d", behind, seq)
		require.Equal(t, [2]uint64{behind, behind}, [2]uint64{d.Mine.Seq, d.Theirs.Seq})
		require.Equal(t, [2]plugin.Collective{plugin.AllReduce, plugin.AllGather},
			[2]plugin.Collective{d.Mine.Collective, d.Theirs.Collective})
		called(b, behind, hash(behind), plugin.AllReduce, int64(behind))
	}
}
