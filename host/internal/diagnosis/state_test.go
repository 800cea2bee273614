package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

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
