package cudaipc

import (
	stdcontext "context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestReduceScatterVReducesToEachRankByTheKernelThatSuitsItsBlock(t *testing.T) {
	counts := []int64{300, 0, 256 * kib, 64 * mib, 64*mib + 4}
	displs := []int64{0, 1 << 40, 300, 4096, 64*mib + 8} // that of nothing may be anything
	kernels := []string{"one_shot_ll", "one_shot_ll", "one_shot_ll128", "two_shot_ll128", "staged_any"}
	blocks := []int64{1, 1, 35, 32, 64}
	for rank := range 5 {
		e := &endpoint{world: 5, rank: rank}
		p, err := e.Prepare(stdcontext.Background(), request(plugin.ReduceScatterV, 5, rank), "reduces")
		require.NoError(t, err)
		launches := launchesOf(t, p, map[plugin.Slot]int64{plugin.SlotBytes: counts[rank]}, slices.Concat(counts, displs))
		require.Len(t, launches, 5, "every rank launches as many, whatever the counts")
		for root, l := range launches {
			require.Equal(t, "shunt_reduce_"+kernels[root]+"_float32", l.Name)
			require.Equal(t, blocks[root], l.grid, "root %d", root)
			require.Equal(t, counts[root], l.values[argBytes])
			require.Equal(t, int64(root), l.values[argRoot])
			require.Zero(t, l.offsets[argRecv])
			if counts[root] > 0 {
				require.Equal(t, displs[root], l.offsets[argSend])
			} else {
				require.Zero(t, l.offsets[argSend])
			}
		}
	}
	base, _, _ := argumentBlock()
	require.Equal(t, []string{"send", "recv", "bytes", "root"},
		[]string{base[argSend].name, base[argRecv].name, base[argBytes].name, base[argRoot].name})

	alone := &endpoint{world: 1}
	p, err := alone.Prepare(stdcontext.Background(), request(plugin.ReduceScatterV, 1, 0), localName)
	require.NoError(t, err)
	for _, test := range [][3]int64{{64, 8, 8}, {0, 1 << 40, 0}} {
		l := launchesOf(t, p, map[plugin.Slot]int64{plugin.SlotBytes: test[0]}, test[:2])
		require.Len(t, l, 1)
		require.Equal(t, test[2], l[0].offsets[argSend])
	}
}

// Blocks are reduced at once, by the kernel that suits the longest, but where most bytes are one rank's.
func TestReduceScatterVReducesBlocksAtOnce(t *testing.T) {
	e := &endpoint{world: 3, rank: 1}
	p, err := e.Prepare(stdcontext.Background(), request(plugin.ReduceScatterV, 3, 1), "blocks")
	require.NoError(t, err)
	base, v, _ := argumentBlock()
	value := func(l launch, name string, p int) int64 {
		return l.values[len(base)+slices.IndexFunc(v, func(a argument) bool { return a.name == name })+p]
	}
	const most = math.MaxInt64
	for _, test := range []struct {
		counts, displs []int64
		kernels        []string
		atOnce         int64 // of each block, at most
	}{
		{[]int64{0, 0, 0}, []int64{1 << 40, 0, 0}, []string{"v_ll"}, most},
		{[]int64{0, 4, 32 * kib}, []int64{1 << 40, 0, 4}, []string{"v_ll"}, most},
		{[]int64{0, 0, 32*kib + 4}, []int64{0, 1 << 40, 0}, []string{"v_ll128"}, most},
		{[]int64{shortBlock, 0, 0}, []int64{0, 0, 1 << 40}, []string{"v_ll128"}, most},
		{[]int64{mib, mib - 4, mib}, []int64{4, 2 * mib, 8 * mib}, []string{"v_ll128"}, most},
		{[]int64{2 * mib, 2*mib - 4, 2 * mib}, []int64{0, 2 * mib, 8 * mib}, []string{"v_direct"}, most},
		{[]int64{2 * mib, 2*mib - 4, 2 * mib}, []int64{0, 2 * mib, 8*mib + 4}, []string{"v_direct_any"}, most},
		{[]int64{8 * mib, 8 * mib, 0}, []int64{0, 8 * mib, 0}, []string{"v_direct"}, most}, // the sum is twice the longest
		{[]int64{8 * mib, 2 * mib, 0}, []int64{0, 8 * mib, 0},
			[]string{"two_shot_ll128", "two_shot_ll128", "one_shot_ll"}, most},
		{[]int64{0, 600 * kib, 0}, []int64{0, 0, 0}, []string{"one_shot_ll", "two_shot_ll128", "one_shot_ll"}, most},
		{[]int64{8 * mib, 8*mib - 8, 4}, []int64{16 * mib, 0, 8 * mib},
			[]string{"v_direct", "one_shot_ll", "one_shot_ll", "one_shot_ll"}, 8*mib - 16},
		{[]int64{4 * mib, 64 * mib, 4*mib - 4}, []int64{64 * mib, 0, 128 * mib},
			[]string{"v_direct", "one_shot_ll", "two_shot_ll128", "one_shot_ll"}, 4 * mib},
	} {
		launches := launchesOf(t, p, map[plugin.Slot]int64{plugin.SlotBytes: test.counts[1]},
			slices.Concat(test.counts, test.displs))
		require.Len(t, launches, len(test.kernels), "%v", test.counts)
		root := 0
		for i, l := range launches {
			blocks, found := strings.CutPrefix(l.Name, "shunt_reduce_scatter_")
			if !found {
				require.Equal(t, "shunt_reduce_"+test.kernels[i]+"_float32", l.Name, "%v", test.counts)
				front := int64(0)
				if len(launches) > 3 {
					front = min(test.counts[root], test.atOnce)
				}
				require.Equal(t, test.counts[root]-front, l.values[argBytes])
				if test.counts[root] > front {
					require.Equal(t, test.displs[root]+front, l.offsets[argSend])
				}
				if root == 1 {
					require.Equal(t, front, l.offsets[argRecv])
				}
				root++
				continue
			}
			require.Equal(t, test.kernels[i]+"_float32", blocks, "%v", test.counts)
			require.Equal(t, min(slices.Max(test.counts), test.atOnce), l.values[argBytes])
			for p := range 3 {
				require.Equal(t, min(test.counts[p], test.atOnce), value(l, "send_count", p))
				if test.counts[p] > 0 {
					require.Equal(t, test.displs[p], value(l, "send_displ", p))
				} else {
					require.Zero(t, value(l, "send_displ", p))
				}
			}
		}
	}
}

// What is longer than the second shortest block of all_gather_v is broadcast, where that takes less time.
func TestAllGatherVBroadcastsWhatIsLonger(t *testing.T) {
	base, v, _ := argumentBlock()
	value := func(l launch, name string, p int) int64 {
		return l.values[len(base)+slices.IndexFunc(v, func(a argument) bool { return a.name == name })+p]
	}
	for _, test := range []struct {
		counts, displs []int64
		kernels        []string // of what is behind, by rank; nil: all is exchanged
		atOnce         int64    // of each block, at most
	}{
		{[]int64{0, 0, 0}, []int64{1 << 40, 0, 0}, nil, math.MaxInt64},
		{[]int64{0, longGather - 1, 0}, []int64{0, 0, 0}, nil, math.MaxInt64},
		{[]int64{64 * mib, 64*mib - 4, 64 * mib}, []int64{0, 64 * mib, 128 * mib}, nil, math.MaxInt64},
		{[]int64{64 * mib, 60 * mib, 50 * mib}, []int64{0, 64 * mib, 128 * mib}, nil, math.MaxInt64}, // too little is won
		{[]int64{0, longGather, 0}, []int64{1 << 40, 8, 1 << 40}, []string{"ll", "direct", "ll"}, 0},
		{[]int64{200 * mib, 40*mib + 8, 8}, []int64{0, 200 * mib, 240*mib + 8}, []string{"chain", "ll", "ll"}, 40 * mib},
		{[]int64{40 * mib, 40 * mib, 80 * mib, 120 * mib}, []int64{4, 40*mib + 4, 80*mib + 4, 160*mib + 4},
			[]string{"ll", "ll", "direct", "direct"}, 40 * mib},
	} {
		world := len(test.counts)
		for rank := range world {
			p, err := (&endpoint{world: world, rank: rank}).Prepare(stdcontext.Background(),
				request(plugin.AllGatherV, world, rank), "ll128")
			require.NoError(t, err)
			none := make([]int64, 2*world)
			launches := launchesOf(t, p, map[plugin.Slot]int64{plugin.SlotBytes: test.counts[rank]},
				slices.Concat(none, test.counts, test.displs))
			require.Len(t, launches, 1+len(test.kernels), "%v", test.counts)
			exchange, broadcasts := launches[0], launches[1:]
			require.True(t, strings.HasPrefix(exchange.Name, "shunt_all_to_all_v"), exchange.Name)
			for p, c := range test.counts {
				require.Equal(t, min(test.counts[rank], test.atOnce), value(exchange, "send_count", p))
				require.Equal(t, min(c, test.atOnce), value(exchange, "recv_count", p))
				require.Equal(t, test.displs[p], value(exchange, "recv_displ", p))
			}
			for root, l := range broadcasts {
				c, from := test.counts[root], min(test.counts[root], test.atOnce)
				require.Equal(t, "shunt_broadcast_"+test.kernels[root], l.Name, "%v", test.counts)
				require.Equal(t, []int64{c - from, int64(root)}, []int64{l.values[argBytes], l.values[argRoot]})
				if c == from { // the displacement of nothing may be outside of the memory
					require.Zero(t, l.offsets[argRecv]+l.offsets[argSend])
					continue
				}
				require.Equal(t, test.displs[root]+from, l.offsets[argRecv])
				if root == rank {
					require.Equal(t, from, l.offsets[argSend])
				}
			}
		}
	}
}

// Between two ranks few thread blocks are enough, but where lengths have vectors put together. Ranks launch as many as
// their peer whatever its memory is: they know each other's lengths, not where blocks begin.
func TestGridOfReduceScatterAmongTwo(t *testing.T) {
	e := &endpoint{world: 2, rank: 1}
	v, err := e.Prepare(stdcontext.Background(), request(plugin.ReduceScatterV, 2, 1), "blocks")
	require.NoError(t, err)
	for _, test := range []struct {
		counts, displs []int64
		kernel         string
		grid           int64
	}{
		{[]int64{8 * mib, 4 * mib}, []int64{0, 8 * mib}, "v_direct", fewBlocks},
		{[]int64{8 * mib, 4*mib + 4}, []int64{0, 8 * mib}, "v_direct", fewBlocks}, // nothing is behind the last
		{[]int64{8 * mib, 4 * mib}, []int64{0, 8*mib + 4}, "v_direct_any", fewBlocks},
		{[]int64{8*mib + 4, 4 * mib}, []int64{0, 8*mib + 4}, "v_direct_any", maxBlocks},
		{[]int64{8*mib + 4, 4 * mib}, []int64{0, 8*mib + 16}, "v_direct", maxBlocks},
	} {
		l := launchesOf(t, v, map[plugin.Slot]int64{plugin.SlotBytes: test.counts[1]},
			slices.Concat(test.counts, test.displs))
		require.Len(t, l, 1)
		require.Equal(t, "shunt_reduce_scatter_"+test.kernel+"_float32", l[0].Name, "%v", test)
		require.Equal(t, test.grid, l[0].grid, "%v", test)
	}
	equal, err := e.Prepare(stdcontext.Background(), request(plugin.ReduceScatter, 2, 1), "direct")
	require.NoError(t, err)
	for bytes, grid := range map[int64]int64{8 * mib: fewBlocks, 8*mib + 4: maxBlocks} {
		l := launchesOf(t, equal, map[plugin.Slot]int64{plugin.SlotBytes: bytes}, nil)
		require.Len(t, l, 1)
		require.Equal(t, grid, l[0].grid, "%d bytes", bytes)
	}
}
