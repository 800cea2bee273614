package call

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestWhatCanBeExplained(t *testing.T) {
	key, err := Explainable(plugin.AllReduce, plugin.Float32, plugin.OpMax, 0)
	require.NoError(t, err)
	require.Equal(t, SignatureOf(plugin.AllReduce, plugin.Float32, plugin.OpMax), key)
	_, err = Explainable(plugin.AllGather, plugin.Float32, 55, 8)
	require.NoError(t, err, "it has no reduction op")
	for want, c := range map[string]struct {
		collective plugin.Collective
		dtype      plugin.DType
		op         plugin.Op
		bytes      int64
	}{
		"explain: collective 99 is unknown":               {99, plugin.Int8, 0, 1},
		"explain all_gather: dtype 77 is unknown":         {plugin.AllGather, 77, 0, 1},
		"explain all_reduce: reduction op 55 is unknown":  {plugin.AllReduce, plugin.Int8, 55, 1},
		"explain barrier: a message has -1 bytes, want 0": {plugin.Barrier, plugin.Int8, 0, -1},
	} {
		_, err := Explainable(c.collective, c.dtype, c.op, c.bytes)
		require.ErrorIs(t, err, plugin.InvalidArgument)
		require.ErrorContains(t, err, want)
	}
}

// Plans that move bytes are shared by dtypes of one size, and by no others; those that reduce are a dtype's own.
func TestSignaturesOfDTypes(t *testing.T) {
	for _, collective := range plugin.Collectives() {
		for a := plugin.DType(0); a.Valid(); a++ {
			for b := plugin.DType(0); b.Valid(); b++ {
				want := a.Bytes() == b.Bytes()
				switch {
				case collective == plugin.Barrier, collective == plugin.Signal, collective == plugin.Wait:
					want = true
				case collective.Reduces():
					want = a == b
				}
				one, other := SignatureOf(collective, a, plugin.OpSum), SignatureOf(collective, b, plugin.OpSum)
				require.Equal(t, want, one == other, "%s of %s and %s", collective, a, b)
			}
			if one := SignatureOf(collective, a, plugin.OpSum); one.DType.Bytes() != a.Bytes() {
				require.Contains(t, []plugin.Collective{plugin.Barrier, plugin.Signal, plugin.Wait}, collective)
			}
			sum, most := SignatureOf(collective, a, plugin.OpSum), SignatureOf(collective, a, plugin.OpMax)
			require.Equal(t, !collective.Reduces(), sum == most, "%s of %s", collective, a)
		}
	}
}
