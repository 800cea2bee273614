package diagnosis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// A fault of a closed communicator is named from what a kernel reported, which may be anything, and nothing else.
func TestFaultOnceClosed(t *testing.T) {
	o := Observer{Rank: 0, World: 2,
		Topology: &topology.Topology{Places: []topology.Place{{PID: 1, Host: "a"}, {PID: 2, Host: "b"}}}}
	o.SetTimeout(time.Second)
	const peer = "peer rank 1 (pid 2, host b)"
	for _, c := range []struct {
		kind plugin.Fault
		peer int
		code plugin.Code
		rank int
		what string
	}{
		{plugin.FaultTimeout, 1, plugin.Timeout, 1, "got no response from " + peer + " for 1s"},
		{plugin.FaultTimeout, -1, plugin.Timeout, 0, "got no response from a peer for 1s"},
		{plugin.FaultAborted, 7, plugin.Aborted, 0, "was aborted"},
		{plugin.FaultAsymmetric, 1, plugin.Mismatch, 1, "found the memory of " + peer + " at another offset"},
		{plugin.FaultLength, 1, plugin.Mismatch, 1, "got a message of another length from " + peer},
		{plugin.FaultCall, 1, plugin.Mismatch, 1, "met another call of " + peer},
		{plugin.FaultCounts, 0, plugin.InvalidArgument, 0, "found invalid counts on the GPU"},
		{plugin.FaultEngine, -1, plugin.Internal, 0, "failed in an engine"},
		{99, 1 << 30, plugin.Mismatch, 0, "gave up, fault 99"},
	} {
		err := o.FaultOnceClosed(c.kind, c.peer)
		require.Equal(t, "rank 0 closed the communicator while an operation was running, which "+c.what, err.Message)
		require.Equal(t, c.code, err.Code, c.what)
		require.Equal(t, c.rank, err.Rank, c.what)
	}
}

// Where no peer is waited for, none is blamed.
func TestATimeoutBlamesNoPeerThatIsNotNamed(t *testing.T) {
	o := Observer{Rank: 0, World: 2}
	o.SetTimeout(time.Second)
	for _, peer := range []int{-1, 2} {
		err := o.PeerTimeout(peer, "in step 1 of track 0")
		require.Equal(t, "rank 0 named no peer that it waited for, and did not end within 1s in step 1 of track 0", err.Message)
		require.Equal(t, plugin.Timeout, err.Code)
		require.Zero(t, err.Rank)
	}
}

// A fault names what each of the two ranks did, from the words that its kernel has compared: its own and the peer's.
func TestFaultsSayWhatEachRankDid(t *testing.T) {
	const huge = uint64(1) << 63
	word := func(c plugin.Collective, root int, bytes int64) [3]uint64 {
		return [3]uint64{uint64(plugin.NewCallWord(c, plugin.OpMax, plugin.Float16, root, bytes))}
	}
	for _, c := range []struct {
		kind        plugin.Fault
		own, theirs [3]uint64
		code        plugin.Code
		rank        int
		text        string
	}{
		{plugin.FaultCall, word(plugin.Broadcast, 1, 64), word(plugin.AllReduce, 0, 32), plugin.Mismatch, 1,
			"ranks disagree: rank 0 runs broadcast with root 1 of 64 bytes, rank 1 all_reduce (max, float16) of 32 bytes; " +
				"a graph of the one may differ from that of the other"},
		{plugin.FaultLength, [3]uint64{40}, [3]uint64{24}, plugin.Mismatch, 0,
			"ranks disagree: rank 1 sends 24 bytes to rank 0, which expects 40"},
		{plugin.FaultAsymmetric, [3]uint64{1, 16, 64}, [3]uint64{2, 32, 128}, plugin.Mismatch, 1,
			"ranks disagree: rank 0 receives into 64 bytes at offset 16 of symmetric range 1, " +
				"rank 1 into 128 bytes at offset 32 of symmetric range 2"},
		{plugin.FaultAsymmetric, [3]uint64{1, 16, 64 | plugin.InPlace}, [3]uint64{1, 16, 64}, plugin.Mismatch, 1,
			"ranks disagree: rank 0 receives into 64 bytes at offset 16 of symmetric range 1, in place, " +
				"rank 1 into 64 bytes at offset 16 of symmetric range 1, out of place"},
		{plugin.FaultAsymmetric, [3]uint64{1, 8, 64 | plugin.InPlace}, [3]uint64{1, 16, 64 | plugin.InPlace},
			plugin.Mismatch, 1, "ranks disagree: rank 0 receives into 64 bytes at offset 8 of symmetric range 1, " +
				"rank 1 into 64 bytes at offset 16 of symmetric range 1"},
		{plugin.FaultCounts, [3]uint64{huge, 0, 0}, [3]uint64{8}, plugin.InvalidArgument, 0,
			"counts in device memory on rank 0: send count -9223372036854775808 for rank 1 is negative"},
		{plugin.FaultCounts, [3]uint64{4, huge, 1}, [3]uint64{8}, plugin.InvalidArgument, 0,
			"counts in device memory on rank 0: receive displacement -9223372036854775808 for rank 1 is negative"},
		{plugin.FaultCounts, [3]uint64{4, 6, 0}, [3]uint64{8}, plugin.InvalidArgument, 0,
			"counts in device memory on rank 0: send count 4 at displacement 6 for rank 1 reaches past the capacity of 8"},
		{plugin.FaultCounts, [3]uint64{4, 6, 1}, [3]uint64{8}, plugin.InvalidArgument, 0,
			"counts in device memory on rank 0: receive count 4 at displacement 6 for rank 1 reaches past the capacity of 8"},
		{plugin.FaultCounts, [3]uint64{4, 0, 2}, [3]uint64{8}, plugin.InvalidArgument, 0,
			"counts in device memory on rank 0: send count 4 of this rank to itself differs from receive count 8"},
		{plugin.FaultAborted, [3]uint64{}, [3]uint64{}, plugin.Aborted, 0, "a kernel of rank 0 was aborted"},
	} {
		err := aLedger(t).Fault(c.kind, 1, func() (own, theirs [3]uint64) { return c.own, c.theirs }, nil)
		require.Equal(t, c.text, err.Message)
		require.Equal(t, c.code, err.Code, c.text)
		require.Equal(t, c.rank, err.Rank, c.text)
	}
}

// The lengths of received messages are compared once: an operation that has ended leaves none for the next one.
func TestReceivedLengthsAreComparedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		sent, expected int64
		want           string
	}{
		"alike":  {8, 8, ""},
		"longer": {12, 8, "ranks disagree: rank 1 sends 12 bytes of uint8 to rank 0, which expects 8 of uint8"},
	} {
		l := aLedger(t)
		sender, err := executor.NewEngine(1, 2)
		require.NoError(t, err)
		t.Cleanup(sender.Close)
		for rank := range 2 {
			require.NoError(t, sender.SetControl(rank, l.pages[rank]))
		}
		sent := sender.Sent(executor.Single, 0)
		sent.Note(executor.MessageOf(test.sent, plugin.Uint8))
		sent.Begun()
		receive := &call.Call{Collective: plugin.Recv, DType: plugin.Uint8, Root: 1, Count: test.expected}
		receive.Slots[plugin.SlotBytes] = test.expected
		l.CompareLater(receive, true)
		require.False(t, l.Unchecked.Any(), "its plan compares")
		l.CompareLater(receive, false)
		require.True(t, l.Unchecked.Any())
		reason := l.Unchecked.Compare(l.Observer)
		require.False(t, l.Unchecked.Any(), "%s: none is left for the next operation", name)
		require.Nil(t, l.Unchecked.Compare(l.Observer))
		if test.want == "" {
			require.Nil(t, reason, name)
			continue
		}
		require.NotNil(t, reason, name)
		require.Equal(t, test.want, reason.Message)
		require.Equal(t, 0, reason.Rank)
	}
}
