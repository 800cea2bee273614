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

// SHUNT_ALGO may name an algorithm that other dtypes or ops have. A call without it has the next name, or fails and
// says why.
func TestAlgorithmsOfOtherCalls(t *testing.T) {
	for _, test := range []struct {
		algo       string
		collective plugin.Collective
		dtype      plugin.DType
		op         plugin.Op
		want, fail string
	}{
		{"all_reduce=t/sums", plugin.AllReduce, plugin.Int32, plugin.OpSum, "t/sums", ""},
		{"all_reduce=t/sums,*", plugin.AllReduce, plugin.Int32, plugin.OpMax, "t/all", ""},
		{"all_reduce=t/sums,*", plugin.AllReduce, plugin.Float32, plugin.OpSum, "t/all", ""},
		{"all_reduce=t/sums", plugin.AllReduce, plugin.Float32, plugin.OpSum, "", "t/sums: takes other dtypes or ops"},
		{"broadcast=t/words,*", plugin.Broadcast, plugin.Float64, plugin.OpSum, "t/all", ""},
		{"broadcast=t/sums,*", plugin.Broadcast, plugin.Float64, plugin.OpSum, "", "has no algorithm t/sums"},
	} {
		override, err := selector.Parse(test.algo)
		require.NoError(t, err)
		pl := &Planner{Observer: &diagnosis.Observer{World: 2, Topology: topology.New(make([]topology.Place, 2))},
			Table: selector.New(selector.WithOverride(override)), Transports: []*Transport{{Name: "t",
				Ask: func(_ context.Context, r plugin.Request) (plugin.Support, error) {
					list := []plugin.Algorithm{{Name: "all", Latency: 1, Bandwidth: 1000}}
					switch {
					case r.Collective == plugin.AllReduce && r.DType == plugin.Int32 && r.Op == plugin.OpSum:
						list = append(list, plugin.Algorithm{Name: "sums", Latency: 9, Bandwidth: 1})
					case r.Collective == plugin.Broadcast && r.DType.Bytes() == 4:
						list = append(list, plugin.Algorithm{Name: "words", Latency: 9, Bandwidth: 1})
					}
					return plugin.Support{Algorithms: list}, nil
				}}}}
		c, err := pl.Choose(t.Context(), call.SignatureOf(test.collective, test.dtype, test.op))
		if err == nil && c.Pick(8) < 0 {
			err = c.Unsupported(8)
		}
		if test.fail != "" {
			require.ErrorContains(t, err, test.fail, test.algo)
			continue
		}
		require.NoError(t, err, test.algo)
		require.Equal(t, test.want, c.Candidates()[c.Pick(8)].Qualified, test.algo)
	}
}
