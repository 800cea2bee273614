package diagnosis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// A fault of a closed communicator is named from what a kernel reported, which may be anything, and nothing else.
func TestFaultOnceClosed(t *testing.T) {
	o := Observer{Rank: 0, World: 2, Timeout: time.Second,
		Topology: &topology.Topology{Places: []topology.Place{{PID: 1, Host: "a"}, {PID: 2, Host: "b"}}}}
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
