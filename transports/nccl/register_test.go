package nccl

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

// Ranks do with NCCL what registered memory takes all of them for, or all do without it.
func TestRanksRegisterAlike(t *testing.T) {
	for _, test := range []struct {
		version string
		options [2]string
		want    string
	}{
		{"22902", [2]string{"on", "on"}, ""},
		{"22902", [2]string{"off", ""}, ""},
		{"22902", [2]string{"off", "on"}, `rank 1 has NCCL "2.29.2 with SHUNT_NCCL_REGISTER=on" and rank 0 NCCL "2.29.2"`},
		{"22809", [2]string{"off", "on"}, ""}, // whose memory is not registered, whatever is asked
	} {
		path, err := nccltest.Build(t.TempDir(), "-DFAKE_VERSION="+test.version)
		require.NoError(t, err)
		require.NoError(t, nccltest.Install(path))
		t.Setenv(Variable, path)
		var published [][]byte
		var e plugin.Exchanger
		for rank, option := range test.options {
			d := cudatest.New(cudatest.Options{Kernels: nccltest.Kernels()})
			t.Cleanup(d.Close)
			opened, err := Transport{Drivers: func(int) cuda.Driver { return d }}.Open(t.Context(), plugin.OpenConfig{Rank: rank,
				World: 2, Memory: plugin.MemoryKindCuda, Options: map[string]string{"register": option}})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, opened.Close()) })
			e = opened.(plugin.Exchanger)
			said, err := e.Publish(t.Context(), plugin.Exchange{})
			require.NoError(t, err)
			published = append(published, said)
		}
		err = e.Connect(t.Context(), plugin.Exchange{}, published)
		if test.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, test.want)
		require.Equal(t, plugin.Unsupported, plugin.CodeOf(err))
	}
}
