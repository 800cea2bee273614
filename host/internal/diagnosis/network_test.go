package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// Only a call that takes something of a rank shows that its host is reached.
func TestWhatShowsThatAHostIsReached(t *testing.T) {
	const rank, peer, other = 0, 1, 2
	for c, roots := range map[plugin.Collective][3]bool{ // by root: rank, peer, other
		plugin.AllReduce: {true, true, true}, plugin.Barrier: {true, true, true}, plugin.AllToAllV: {true, true, true},
		plugin.Broadcast: {false, true, false}, plugin.Scatter: {false, true, false},
		plugin.ScatterV: {false, true, false}, plugin.Recv: {false, true, false},
		plugin.Reduce: {true, false, false}, plugin.Gather: {true, false, false}, plugin.GatherV: {true, false, false},
		plugin.Send: {}, plugin.Put: {},
	} {
		for root, want := range roots {
			require.Equal(t, want, brings(executor.Flight{Collective: c, Root: root}, rank, peer), "%v, root %d", c, root)
		}
	}
}

// A host may have any number of interfaces and addresses.
func TestInterfacesInErrors(t *testing.T) {
	var many []networkInterface
	for _, name := range []string{"eth0", "eth1", "eth2", "eth3", "eth4", "eth5"} {
		many = append(many, networkInterface{name, []string{"10.0.0.1", "fd00::1", "fd00::2"}})
	}
	require.Empty(t, interfacesOf(nil))
	require.Equal(t, "eth0 10.0.0.1 fd00::1, eth1 10.0.0.1 fd00::1", interfacesOf(many[:2]))
	require.Equal(t, "eth0 10.0.0.1 fd00::1, eth1 10.0.0.1 fd00::1, eth2 10.0.0.1 fd00::1, eth3 10.0.0.1 fd00::1 and 2 more",
		interfacesOf(many))
}

// An error about ranks of another host names what chooses the interfaces; one about a rank of this host does not.
func TestTimeoutBetweenHostsNamesTheInterfaces(t *testing.T) {
	o, called := lateWorld(t)
	o.Topology.Places[0].Host, o.Topology.Places[1].Host = "here", "there"
	called(1, 1, plugin.Barrier)
	called(0, 1, plugin.Barrier)
	require.NotContains(t, o.PeerTimeout(1, "").Message, "network")
	o.Topology.Places[1].HostID = "another"
	const reach = "so their call waits for the network: host there and host here must reach each other on all ports, and by the interfaces that their transport uses"
	require.Contains(t, o.PeerTimeout(1, "").Message, reach+" (a variable of its library chooses them, such as UCX_NET_DEVICES")
	o.OnDevice = true
	require.Contains(t, o.PeerTimeout(1, "").Message, reach+" (a variable of its library chooses them, such as NCCL_SOCKET_IFNAME")
}
