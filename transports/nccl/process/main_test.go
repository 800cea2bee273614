package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/internal/carriedtest"
	"github.com/shunt-ccl/shunt/plugin"
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

// The library that an option names is the one that Open finds, and Supports since.
func TestTheLibraryIsAnOption(t *testing.T) {
	path, err := nccltest.Build(t.TempDir())
	require.NoError(t, err)
	carried := carrier.Load(t)
	open := func(library string) error {
		e, err := carried.Open(t.Context(), plugin.OpenConfig{World: 1, Memory: plugin.MemoryKindCuda,
			Options: map[string]string{"library": library}})
		if err != nil {
			return err
		}
		require.Len(t, e.Regions(), 2)
		return e.Close()
	}
	err = open("/nowhere/libnccl.so.2")
	require.ErrorIs(t, err, plugin.Unsupported)
	require.ErrorContains(t, err, "/nowhere/libnccl.so.2: no such file or directory")
	err = open(path)
	if _, missing := cuda.Open(); missing != nil {
		require.ErrorIs(t, err, plugin.Unsupported, "a machine without a GPU loads it all the same")
		require.ErrorContains(t, err, "no CUDA driver")
	} else {
		require.NoError(t, err)
	}
	support := carried.Supports(plugin.Request{Collective: plugin.AllReduce, World: 2, Hosts: 1,
		Memory: plugin.MemoryKindCuda})
	require.Len(t, support.Algorithms, 1, support.Reason)
}
