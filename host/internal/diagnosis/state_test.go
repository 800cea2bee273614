package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestConflictsSayWhereCountsAre(t *testing.T) {
	onHost := State{Valid: true, Seq: 7, Collective: plugin.AllToAllV, DType: plugin.Float32}
	onDevice := onHost
	onDevice.DeviceCounts = true
	require.Empty(t, Conflict(0, onDevice, 1, onDevice))
	require.Equal(t, "ranks disagree: rank 0 called #7 all_to_all_v, count 0 of float32, counts on the device; rank 1 called #7 all_to_all_v, count 0 of float32",
		Conflict(0, onDevice, 1, onHost))
	require.Equal(t, "ranks disagree: rank 2 called #7 all_to_all_v, count 0 of float32; rank 1 called #7 all_to_all_v, count 0 of float32, counts on the device",
		Conflict(2, onHost, 1, onDevice))
}

// A rank that has gone on to a later call has sent all that others wait for: between hosts the network has it.
func TestWhatTheNetworkHas(t *testing.T) {
	at := func(seq uint64) State { return State{Valid: true, Seq: seq, Collective: plugin.AllReduce} }
	closed := State{Valid: true, Seq: 8, Collective: Closed}
	for _, c := range []struct {
		mine, theirs State
		want         string
	}{
		{at(7), at(7), "their call"}, {at(7), at(8), "what rank 2 sent"}, {at(7), at(6), ""}, {State{}, State{}, ""},
		{at(7), State{}, ""}, {at(7), closed, ""},
	} {
		require.Equal(t, c.want, WaitsForNetwork(0, c.mine, 2, c.theirs), "%v, %v", c.mine, c.theirs)
	}
}
