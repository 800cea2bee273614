package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// A message has no number that ranks count alike, but another rank.
func TestStatesNameThePeerOfAMessage(t *testing.T) {
	message := State{Valid: true, Seq: 300, Collective: plugin.Send, DType: plugin.Float32, Count: 8, Root: 2}
	require.Equal(t, "called send to rank 2 (after #300), count 8 of float32", message.String())
	message.Collective = plugin.Recv
	require.Equal(t, "called recv from rank 2 (after #300), count 8 of float32", message.String())
	message.Collective = plugin.Broadcast
	require.Equal(t, "called #300 broadcast, count 8 of float32, root 2", message.String())
}

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

// What a rank of another host calls is known here when it has told so: meanwhile it may have made any number of calls.
func TestWhatIsKnownOfAnotherHost(t *testing.T) {
	o, called := lateWorld(t)
	require.Equal(t, "has called nothing yet", o.calls(1, o.State(1)))
	o.Topology.Places[1].HostID = "another"
	require.Equal(t, "has told of no call yet", o.calls(1, o.State(1)))
	require.Contains(t, o.PeerTimeout(1, "").Message, "; that rank has told of no call yet, rank 0 has called nothing yet")
	called(1, 5, plugin.Barrier)
	require.Equal(t, "last told that it called #5 barrier, count 0 of "+plugin.DType(0).String(), o.calls(1, o.State(1)))
	called(1, 6, Closed)
	require.Equal(t, "has closed the communicator", o.calls(1, o.State(1)))
}
