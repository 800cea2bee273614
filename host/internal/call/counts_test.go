package call

import (
	"testing"

	"github.com/stretchr/testify/assert"

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
