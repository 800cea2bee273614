package host_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// Options.Algo goes before SHUNT_ALGO, and must be equal on all ranks.
func TestAlgoInCode(t *testing.T) {
	t.Setenv("SHUNT_ALGO", "all_reduce=shm/one_shot")
	chosen := func(adjust func(int, *host.Options)) (string, error) {
		names := make(chan string, 2)
		errs := worldErrors(t, 2, adjust, func(c *host.Communicator) error {
			e, err := c.Explain(plugin.AllReduce, plugin.Float32, plugin.OpSum, 8)
			names <- e.Chosen
			return err
		})
		for _, err := range errs {
			if err != nil {
				return "", err
			}
		}
		return <-names, nil
	}
	for algo, want := range map[string]string{"": "shm/one_shot", "all_reduce=shm/two_shot": "shm/two_shot"} {
		have, err := chosen(func(_ int, o *host.Options) { o.Algo = algo })
		require.NoError(t, err)
		require.Equal(t, want, have)
	}
	_, err := chosen(func(rank int, o *host.Options) {
		if rank == 1 {
			o.Algo = "all_reduce=shm/two_shot"
		}
	})
	require.ErrorContains(t, err, "SHUNT_ALGO")
	_, err = chosen(func(_ int, o *host.Options) { o.Algo = "nonsense" })
	require.ErrorIs(t, err, plugin.InvalidArgument)
}
