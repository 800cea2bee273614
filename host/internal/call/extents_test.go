package call

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// varying returns every collective that takes counts for each rank, once for each side on which it takes them, as rank
// 1 of 3 calls it. counts and displacements are those of that side.
func varying(counts, displacements []int64) map[string]Arguments {
	own := int64(0)
	if len(counts) > 1 {
		own = counts[1]
	}
	with := func(collective plugin.Collective, sends bool) Arguments {
		a := Arguments{Collective: collective, DType: plugin.Float32, Count: own, Root: 1, Send: address(base),
			Recv: address(base << 1)}
		if sends {
			a.SendCounts, a.SendDispls = counts, displacements
		} else {
			a.RecvCounts, a.RecvDispls = counts, displacements
		}
		return a
	}
	sending, receiving := with(plugin.AllToAllV, true), with(plugin.AllToAllV, false)
	sending.RecvCounts, receiving.SendCounts = []int64{0, own, 0}, []int64{0, own, 0}
	return map[string]Arguments{
		"all_gather_v":            with(plugin.AllGatherV, false),
		"reduce_scatter_v":        with(plugin.ReduceScatterV, true),
		"gather_v":                with(plugin.GatherV, false),
		"scatter_v":               with(plugin.ScatterV, true),
		"all_to_all_v, sending":   sending,
		"all_to_all_v, receiving": receiving,
	}
}

// longest returns the longer of the lengths of a call's memory: that of the side with counts for each rank.
func longest(call *Call) int64 {
	return max(call.Slots[plugin.SlotSendBytes], call.Slots[plugin.SlotRecvBytes])
}

// The memory of a collective with displacements reaches to the end of the block that ends last, wherever that stands in
// the list; empty blocks reach nowhere.
func TestExtentOfDisplacedBlocks(t *testing.T) {
	c := &Checker{Rank: 1, World: 3}
	for name, test := range map[string]struct {
		counts, displacements []int64
		elements              int64
	}{
		"one behind the other":   {[]int64{3, 5, 7}, nil, 15},
		"the first block last":   {[]int64{3, 5, 7}, []int64{40, 0, 10}, 43},
		"the middle block last":  {[]int64{3, 5, 7}, []int64{0, 40, 10}, 45},
		"the last block last":    {[]int64{3, 5, 7}, []int64{10, 0, 40}, 47},
		"an empty block last":    {[]int64{3, 5, 0}, []int64{8, 0, 100}, 11},
		"empty blocks far apart": {[]int64{0, 0, 0}, []int64{100, 200, 300}, 0},
	} {
		for collective, a := range varying(test.counts, test.displacements) {
			call, err := check(t, c, a)
			require.NoError(t, err, "%s: %s", collective, name)
			require.Equal(t, 4*test.elements, longest(call), "%s: %s", collective, name)
		}
	}
}

// Blocks may be sent twice, but none is received into another, in whatever order they lie. Empty ones are nowhere.
func TestReceivedBlocksDoNotOverlap(t *testing.T) {
	const most = 4
	c := &Checker{Rank: 1, World: 3}
	for n := range most * most * most * most * most * most {
		var counts, displacements []int64
		for range 3 {
			counts, displacements = append(counts, int64(n%most)), append(displacements, int64(n/most%most))
			n /= most * most
		}
		var taken [2 * most]int
		overlap := false
		for r := range counts {
			for i := range counts[r] {
				taken[displacements[r]+i]++
				overlap = overlap || taken[displacements[r]+i] > 1
			}
		}
		for collective, a := range varying(counts, displacements) {
			if _, err := check(t, c, a); overlap && a.RecvDispls != nil {
				require.Regexp(t, "receive blocks of ranks [01] and [12] overlap", err, "%s: %v %v", collective, counts, displacements)
			} else {
				require.NoError(t, err, "%s: %v %v", collective, counts, displacements)
			}
		}
	}
}

// No count, displacement or sum of the two may be more bytes than a number holds.
func TestOverflowOfCountsAndDisplacements(t *testing.T) {
	const most = math.MaxInt64 / 4
	c := &Checker{Rank: 1, World: 3}
	for name, test := range map[string]struct {
		counts, displacements []int64
		want                  string
	}{
		"a count":         {[]int64{0, 1, most + 1}, nil, "count 2305843009213693952 of float32 for rank 2 overflows"},
		"a displacement":  {[]int64{0, 1, 1}, []int64{0, 0, most + 1}, "displacement 2305843009213693952 of float32"},
		"their sum":       {[]int64{0, 1, 1}, []int64{0, 0, most}, "count and displacement for rank 2 overflow"},
		"a sum of counts": {[]int64{most, 1, 0}, nil, "count and displacement for rank 1 overflow"},
		"a large sum":     {[]int64{0, 1, most}, []int64{0, 0, most}, "count and displacement for rank 2 overflow"},
	} {
		for collective, a := range varying(test.counts, test.displacements) {
			_, err := check(t, c, a)
			require.ErrorIs(t, err, plugin.InvalidArgument, "%s: %s", collective, name)
			require.ErrorContains(t, err, test.want, "%s: %s", collective, name)
		}
	}
}

// A rank gives itself as much as it expects of itself: neither more nor less.
func TestCountOfARankForItself(t *testing.T) {
	c := &Checker{Rank: 1, World: 3}
	for collective, a := range varying([]int64{3, 5, 7}, nil) {
		for _, own := range []int64{4, 5, 6} {
			b := a
			switch {
			case a.Collective == plugin.ReduceScatterV:
				continue // it has no second count
			case a.Collective != plugin.AllToAllV:
				b.Count = own
			case len(a.SendCounts) == 3 && a.SendCounts[0] == 0:
				b.SendCounts = []int64{0, own, 0}
			default:
				b.RecvCounts = []int64{0, own, 0}
			}
			_, err := check(t, c, b)
			if own == 5 {
				require.NoError(t, err, collective)
				continue
			}
			require.ErrorIs(t, err, plugin.InvalidArgument, "%s: %d elements", collective, own)
			require.ErrorContains(t, err, "differs from", "%s: %d elements", collective, own)
		}
	}
}
