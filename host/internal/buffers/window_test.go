package buffers

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
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
