package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/internal/carriedtest"
	"github.com/shunt-ccl/shunt/transports/nccl"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

var carrier = carriedtest.Process()

func TestMain(m *testing.M) { carrier.Main(m) }

// The process says the same of itself and of every collective as the transport that is linked in, which finds the same
// library or none.
func TestCarriedTransportIsTheStagedOne(t *testing.T) {
	carriedtest.Same(t, carrier.Load(t), nccl.Staged{}, func(c plugin.Collective) plugin.Request {
		return plugin.Request{Collective: c, DType: plugin.Bfloat16, World: 4, Hosts: 1, Memory: plugin.MemoryKindCuda}
	})
}

// The library that the host's environment names is the process's too, or the reason why it serves nothing.
func TestTheLibraryIsTheHosts(t *testing.T) {
	request := plugin.Request{Collective: plugin.AllReduce, World: 2, Hosts: 1, Memory: plugin.MemoryKindCuda}
	config := plugin.OpenConfig{World: 2, Memory: plugin.MemoryKindCuda}
	const missing = "SHUNT_NCCL_LIBRARY: /nowhere/libnccl.so.2: no such file or directory"
	t.Setenv(nccl.Variable, "/nowhere/libnccl.so.2")
	carried := carrier.Load(t)
	require.Equal(t, missing, carried.Supports(request).Reason)
	_, err := carried.Open(t.Context(), config)
	require.ErrorIs(t, err, plugin.Unsupported)
	require.ErrorContains(t, err, missing)

	path, err := nccltest.Build(t.TempDir())
	require.NoError(t, err)
	t.Setenv(nccl.Variable, path)
	carried = carrier.Load(t)
	require.Len(t, carried.Supports(request).Algorithms, 1)
	e, err := carried.Open(t.Context(), config)
	if _, missing := cuda.Open(); missing != nil {
		require.ErrorIs(t, err, plugin.Unsupported, "a machine without a GPU loads it all the same")
		require.ErrorContains(t, err, "no CUDA driver")
		return
	}
	require.NoError(t, err)
	require.Len(t, e.Regions(), 2)
	require.NoError(t, e.Close())
}
