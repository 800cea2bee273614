package plans

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// Whatever the override and the costs say, a message between GPUs has one transport, alone and in a group.
func TestBothEndsOfAMessageUseOneTransport(t *testing.T) {
	fast := plugin.Support{Algorithms: []plugin.Algorithm{{Name: "a", Latency: 1, Bandwidth: 1000}}}
	for _, test := range []struct {
		memory             plugin.MemoryKind
		algo               string
		small, large, fail string
	}{
		{plugin.MemoryKindCuda, "", "first/a", "first/a", ""},
		{plugin.MemoryKindCuda, "*:64M-=second;*=*", "first/a", "first/a", ""},
		{plugin.MemoryKindCuda, "send:64M-=second;*=*", "first/a", "", "first runs all_to_all_v"},
		{plugin.MemoryKindCuda, "send:64M-=second,*;*=*", "first/a", "first/a", ""},
		{plugin.MemoryKindCuda, "send=second/a", "", "", "first runs all_to_all_v"},
		{plugin.MemoryKindCuda, "all_to_all_v=second", "second/a", "second/a", ""},
		{plugin.MemoryKindCuda, "send=second;all_to_all_v=second", "second/a", "second/a", ""},
		{plugin.MemoryKindHost, "*:64M-=second;*=*", "first/a", "second/a", ""},
		{plugin.MemoryKindCuda, "all_to_all_v=third", "first/a", "first/a", ""},
	} {
		override, err := selector.Parse(test.algo)
		require.NoError(t, err)
		pl := &Planner{Observer: &diagnosis.Observer{World: 2, Topology: topology.New(make([]topology.Place, 2))},
			Table: selector.New(selector.WithOverride(override)), Memory: test.memory}
		for _, name := range []string{"first", "second", "third"} {
			pl.Transports = append(pl.Transports, &Transport{Name: name,
				Ask: func(_ context.Context, r plugin.Request) (plugin.Support, error) {
					if name == "third" && r.Collective != plugin.AllToAllV {
						return plugin.Support{Reason: "it exchanges alone"}, nil
					}
					return fast, nil
				}})
		}
		for _, collective := range []plugin.Collective{plugin.Send, plugin.Recv} {
			c, err := pl.Choose(t.Context(), call.SignatureOf(collective, plugin.Float32, 0))
			require.NoError(t, err, test.algo)
			for bytes, want := range map[int64]string{8: test.small, 64 << 20: test.large} {
				i := c.Pick(bytes)
				if want == "" {
					require.Equal(t, -1, i, test.algo)
					require.ErrorContains(t, c.Unsupported(bytes), test.fail)
					continue
				}
				require.Equal(t, want, c.Candidates()[i].Qualified, test.algo)
			}
		}
	}
}
