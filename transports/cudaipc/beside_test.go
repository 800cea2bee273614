package cudaipc

import (
	stdcontext "context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// Beside computation, as a stream of high priority or a budget says, a kernel behind which ranks meet has a gate, and
// begins when that has ended.
func TestGates(t *testing.T) {
	for _, test := range []struct {
		c             plugin.Collective
		name          string
		world, budget int
		bytes         int64
		priority      int64
		gate          int64 // or -1
	}{
		{plugin.AllGather, "direct", 4, 0, 2 * mib, 5, gateDirect}, {plugin.AllGather, "direct", 4, 0, 64 * mib, 1, gateDirect},
		{plugin.AllGather, "direct", 2, 0, 2 * mib, 1, gateDirect}, {plugin.AllGather, "direct", 8, 1, 8 * mib, 0, gateDirect},
		{plugin.ReduceScatter, "staged", 4, 0, 2 * mib, 1, gateStaged},
		{plugin.ReduceScatter, "staged", 3, 64, 20 * mib, 0, gateStaged},
		{plugin.ReduceScatter, "direct", 4, 0, 16 * mib, 1, gateDirect},
		{plugin.ReduceScatter, "direct", 2, 24, 8 * mib, 0, gateDirect},
		{plugin.ReduceScatter, "staged", 2, 0, 80 * mib, 2, gateStaged},
		{plugin.AllGather, "direct", 4, 0, 2 * mib, 0, -1}, {plugin.ReduceScatter, "staged", 4, 0, 2 * mib, 0, -1},
		{plugin.AllGather, "ll128", 4, 24, 2 * mib, 1, -1}, {plugin.AllReduce, "staged", 4, 24, 2 * mib, 1, -1},
		{plugin.AllReduce, "direct", 2, 0, 8 * mib, 1, -1}, {plugin.AllToAll, "direct", 4, 0, 8 * mib, 1, -1},
		{plugin.ReduceScatter, "staged", 4, 0, 0, 1, -1}, {plugin.ReduceScatter, "staged", 4, 24, 0, 1, -1},
	} {
		for _, address := range []int64{1 << 40, 1<<40 + 4} {
			e := &endpoint{world: test.world, maxSMs: test.budget}
			p, err := e.Prepare(stdcontext.Background(), request(test.c, test.world, 0), test.name)
			require.NoError(t, err)
			slots := map[plugin.Slot]int64{plugin.SlotBytes: test.bytes, plugin.SlotPriority: test.priority}
			launches := launchesAt(t, p, address, slots, nil)
			if test.gate < 0 {
				require.Len(t, launches, 1, "%+v", test)
				continue
			}
			require.Len(t, launches, 2, "%+v", test)
			require.Equal(t, "shunt_gate", launches[0].Name)
			gate := launches[0]
			require.Equal(t, []int64{1, 32, test.gate}, []int64{gate.grid, gate.block, gate.values[argRoot]})
			require.False(t, launches[1].dependent, "it would begin beside the gate")
		}
	}
}

// An all_reduce of long messages tells how many blocks it wishes for: all, but beside computation few. Its grid is the
// same either way, as ranks may differ in that; only whether it is spread is a rank's own matter.
func TestWishes(t *testing.T) {
	for _, test := range []struct{ bytes, priority, root int64 }{
		{8 * mib, 0, 0}, {8 * mib, 1, 0}, {besideFrom, 1, 0},
		{besideFrom + 4, 0, 1}, {besideFrom + 4, 1, 1 + besideBlocks}, {512 * mib, 0, 1}, {512 * mib, 5, 1 + besideBlocks},
	} {
		for _, world := range []int{3, 4, 8} {
			e := &endpoint{world: world}
			p, err := e.Prepare(stdcontext.Background(), request(plugin.AllReduce, world, 0), "staged")
			require.NoError(t, err)
			slots := map[plugin.Slot]int64{plugin.SlotBytes: test.bytes}
			alone := launchesOf(t, p, slots, nil)
			slots[plugin.SlotPriority] = test.priority
			l := launchesAt(t, p, 0, slots, nil)
			require.Len(t, l, 1)
			require.Equal(t, test.root, l[0].values[argRoot], "%+v among %d", test, world)
			require.Equal(t, alone[0].grid, l[0].grid)
			require.Equal(t, test.root <= 1 && test.bytes >= spreadFrom, l[0].spread, "%+v", test)
			require.Equal(t, test.root <= 1 && !l[0].spread, l[0].dependent, "more than few blocks begin beside few: %+v", test)
		}
	}
	for _, world := range []int{2, 4} { // a budget is agreed, and two ranks have few blocks anyhow
		e := &endpoint{world: world, maxSMs: 24}
		p, err := e.Prepare(stdcontext.Background(), request(plugin.AllReduce, world, 0), "staged")
		require.NoError(t, err)
		slots := map[plugin.Slot]int64{plugin.SlotBytes: 512 * mib, plugin.SlotPriority: 1}
		for _, l := range launchesAt(t, p, 0, slots, nil) {
			require.Zero(t, l.values[argRoot])
		}
	}
}

// Ranks that have met need no gate: those of a reduce_scatter within an all_reduce by copy engines.
func TestNoGateAmongRanksThatHaveMet(t *testing.T) {
	for _, budget := range []int{0, 24} {
		e := &endpoint{world: 4, maxSMs: budget}
		p, err := e.Prepare(stdcontext.Background(), symmetricRequest(plugin.AllReduce, 4, 0), "ce")
		require.NoError(t, err)
		for _, grids := range launched(t, p, map[plugin.Slot]int64{plugin.SlotBytes: 64 * mib, plugin.SlotPriority: 1}) {
			require.NotContains(t, grids, "shunt_gate")
		}
	}
}

// launched returns the names of the kernels that a plan launches, by track.
func launched(t *testing.T, p *plugin.Plan, slots map[plugin.Slot]int64) [][]string {
	tracks := make([][]string, len(p.Tracks))
	eachStep(t, p, 1<<40, slots, nil, func(track int, s *plugin.Step, _ []int64, _ func(uint16) (int64, string)) {
		if s.Kind == plugin.StepLaunch {
			tracks[track] = append(tracks[track], p.Kernels[s.A].Name)
		}
	})
	return tracks
}
