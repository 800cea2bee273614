package buffers

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// A peer may say that its window is open before this rank has come so far. The
// window is mapped all the same, once it is open here, and not any more when it
// has been closed here first.
func TestWindowsOfFasterPeersAreMappedLater(t *testing.T) {
	const peer, at, region, generation = 1, 3, 70, 5
	registry := aRegistry(t)
	said := registry.pages[0].mapped(peer, at)
	address := func() cuda.Ptr {
		b := make([]byte, 8)
		require.NoError(t, registry.gpu.Driver.Read(registry.gpu.Context, b,
			registry.table+cuda.Ptr(plugin.DirectoryImport(peer, at))))
		return cuda.Ptr(binary.LittleEndian.Uint64(b))
	}
	follow := func() { registry.followPeer(t.Context(), peer, false) }

	registry.pages[peer].write(at, pageEntry{generation: generation, kind: kindWindow, base: 0x1000, bytes: 4096,
		ordinal: region})
	follow()
	require.Zero(t, atomic.LoadUint64(said), "it was given up before it was open here")
	registry.windows[region] = []cuda.Ptr{0x2000, 0x3000}
	follow()
	require.EqualValues(t, generation, atomic.LoadUint64(said))
	require.EqualValues(t, 0x3000, address())

	registry.pages[peer].clear(at)
	follow()
	require.Zero(t, atomic.LoadUint64(said))
	require.Zero(t, address())
	delete(registry.windows, region)
	registry.pages[peer].write(at, pageEntry{generation: generation + 1, kind: kindWindow, base: 0x1000, bytes: 4096,
		ordinal: region})
	follow()
	require.Zero(t, atomic.LoadUint64(said))
	require.Zero(t, address())
}

// What a peer exports is unmapped again where it cannot be entered in the kernels' table.
func TestNothingStaysMappedThatKernelsCannotBeToldOf(t *testing.T) {
	registry, peer := aRegistry(t), cudatest.New(cudatest.Options{})
	t.Cleanup(peer.Close)
	registry.Topology = topology.New([]topology.Place{{Rank: 0, PID: 1}, {Rank: 1, PID: 2}})
	ctx, err := peer.Retain(0)
	require.NoError(t, err)
	base, err := peer.Alloc(ctx, 4096)
	require.NoError(t, err)
	handle, err := peer.ExportIPC(ctx, base)
	require.NoError(t, err)
	registry.pages[1].write(3, pageEntry{generation: 5, kind: plugin.HandleKindCudaIpc, base: base, bytes: 4096,
		ipc: handle})
	driver := registry.gpu.Driver.(*cudatest.Driver)
	before := driver.Leaks()
	driver.Fail("Copy", 0, cuda.OutOfMemory)
	registry.followPeer(t.Context(), 1, false)
	require.False(t, driver.Pending("Copy"))
	require.Equal(t, before, driver.Leaks())
	registry.followPeer(t.Context(), 1, true)
	require.EqualValues(t, 5, atomic.LoadUint64(registry.pages[0].mapped(1, 3)), "it is mapped in the next attempt")
}
