package survey

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestWorldTooLarge(t *testing.T) {
	limit := func(name string, world int, kind plugin.MemoryKind) plugin.Info {
		return plugin.Info{Name: name, MaxWorld: world, Memory: []plugin.MemoryKind{kind}}
	}
	small, large := limit("small", 2, plugin.MemoryKindHost), limit("large", 8, plugin.MemoryKindHost)
	endless := limit("endless", 0, plugin.MemoryKindHost)
	require.NoError(t, WorldTooLarge([]plugin.Info{small, large}, plugin.MemoryKindHost, 8), "one is enough")
	require.NoError(t, WorldTooLarge([]plugin.Info{small, endless}, plugin.MemoryKindHost, 9), "0 is no limit")
	require.NoError(t, WorldTooLarge([]plugin.Info{small}, plugin.MemoryKindCuda, 3), "none is for that memory")
	err := WorldTooLarge([]plugin.Info{small, limit("gpu", 0, plugin.MemoryKindCuda), large}, plugin.MemoryKindHost, 9)
	require.ErrorIs(t, err, plugin.Unsupported)
	require.EqualError(t, err, "no transport serves a world of 9 ranks on host memory: small at most 2, large at most 8")
}
