package call

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// Counts come from other processes: a list that is not one count for each rank is no reason to fail; it is not
// compared.
func TestDifferentCounts(t *testing.T) {
	for name, test := range map[string]struct {
		collective plugin.Collective
		all        []Counts
		rank       int
		text       string
	}{
		"equal": {plugin.AllToAllV, []Counts{{[]int64{0, 1}, []int64{0, 2}}, {[]int64{2, 0}, []int64{1, 0}}}, 0, ""},
		"to the first": {plugin.AllToAllV, []Counts{{[]int64{0, 1}, []int64{0, 2}}, {[]int64{3, 0}, []int64{1, 0}}}, 1,
			"rank 1 sends 3 bytes to rank 0, which expects 2"},
		"from the last": {plugin.ScatterV, []Counts{{[]int64{1, 1, 5}, nil}, {}, {nil, []int64{4, 0, 0}}}, 2,
			"rank 0 sends 5 bytes to rank 2, which expects 4"},
		"blocks": {plugin.AllGatherV, []Counts{{nil, []int64{3, 2}}, {nil, []int64{3, 1}}}, 1,
			"block 1 has 2 bytes on rank 0 and 1 on rank 1"},
		"incomplete":  {plugin.AllToAllV, []Counts{{[]int64{1}, []int64{1, 2, 3}}, {[]int64{9, 9}, nil}}, 0, ""},
		"none":        {plugin.AllGatherV, []Counts{{}, {nil, []int64{1, 2}}}, 0, ""},
		"not varying": {plugin.AllReduce, []Counts{{[]int64{1, 2}, []int64{3, 4}}, {[]int64{5, 6}, []int64{7, 8}}}, 0, ""},
	} {
		rank, text := DifferentCounts(test.collective, test.all)
		assert.Equal(t, test.rank, rank, name)
		assert.Equal(t, test.text, text, name)
	}
}

// Ranks tell their counts of the side that others see, where there are any, in worlds that are not too large.
func TestCountsThatRanksTell(t *testing.T) {
	for _, test := range []struct {
		collective     plugin.Collective
		gives, expects bool
	}{
		{plugin.AllToAllV, true, true}, {plugin.GatherV, true, true}, {plugin.ScatterV, true, true},
		{plugin.AllGatherV, false, true}, {plugin.ReduceScatterV, true, false}, {plugin.AllToAll, false, false},
	} {
		for _, world := range []int{1, 2, maxCompared, maxCompared + 1} {
			arrays := make([]int64, 4*world)
			for i := range arrays {
				arrays[i] = int64(i)
			}
			call := Call{Collective: test.collective, Arrays: arrays}
			var want Counts
			if test.gives && world <= maxCompared {
				want.Gives = arrays[:world]
			}
			if test.expects && world <= maxCompared {
				want.Expects = arrays[2*world : 3*world]
			}
			require.Equal(t, want, call.Counts(world), "%s in a world of %d", test.collective, world)
			call.OnDevice = true
			require.Equal(t, Counts{}, call.Counts(world), "they are not on the host")
			require.Equal(t, Counts{}, (&Call{Collective: test.collective}).Counts(world))
		}
	}
}
