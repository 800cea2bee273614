package selector

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is built in says on which machines it holds, and holds nowhere else.
func TestBuiltin(t *testing.T) {
	require.NotEmpty(t, Builtin().Entries)
	for _, e := range Builtin().Entries {
		require.Equal(t, "h200-nvlink", e.Topology)
		require.Equal(t, "cuda", e.Memory)
		require.NotEmpty(t, e.Mode)
		require.Positive(t, e.World)
		require.Positive(t, e.Hosts)
	}
}
