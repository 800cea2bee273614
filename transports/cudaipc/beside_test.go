package cudaipc

import (
	stdcontext "context"
	"slices"
	"strings"
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
		gate          string // before the kernel, if there is one
	}{
		{plugin.AllGather, "direct", 4, 0, 2 * mib, 5, "direct"}, {plugin.AllGather, "direct", 4, 0, 64 * mib, 1, "direct"},
		{plugin.AllGather, "direct", 2, 0, 2 * mib, 1, "direct"}, {plugin.AllGather, "direct", 8, 1, 8 * mib, 0, "direct"},
		{plugin.ReduceScatter, "staged", 4, 0, 2 * mib, 1, "staged"},
		{plugin.ReduceScatter, "staged", 3, 64, 20 * mib, 0, "staged"},
		{plugin.ReduceScatter, "direct", 4, 0, 16 * mib, 1, "direct"},
		{plugin.ReduceScatter, "direct", 2, 24, 8 * mib, 0, "direct"},
		{plugin.ReduceScatter, "staged", 2, 0, 80 * mib, 2, "staged"},
		{plugin.AllGather, "direct", 4, 0, 2 * mib, 0, ""}, {plugin.ReduceScatter, "staged", 4, 0, 2 * mib, 0, ""},
		{plugin.AllGather, "ll128", 4, 24, 2 * mib, 1, "ll128"}, {plugin.AllGather, "ll128", 2, 0, gateFrom, 1, "ll128"},
		{plugin.AllGather, "ll128", 2, 0, 2 * mib, 0, ""}, {plugin.ReduceScatter, "ll128", 4, 0, gateFrom - 4, 1, ""},
		{plugin.ReduceScatter, "ll128", 4, 0, gateFrom, 1, "ll128"}, {plugin.AllToAll, "ll128", 2, 0, gateFrom, 1, "ll128"},
		{plugin.AllToAll, "direct", 4, 0, 8 * mib, 1, "direct"}, {plugin.AllToAll, "ll128", 4, 24, 1 * mib, 1, ""},
		{plugin.AllReduce, "direct", 2, 0, 8 * mib, 1, ""}, {plugin.AllReduce, "staged", 4, 24, 2 * mib, 1, ""},
		{plugin.ReduceScatter, "staged", 4, 0, 0, 1, ""}, {plugin.ReduceScatter, "staged", 4, 24, 0, 1, ""},
	} {
		for _, address := range []int64{1 << 40, 1<<40 + 4} {
			e := &endpoint{world: test.world, maxSMs: test.budget}
			p, err := e.Prepare(stdcontext.Background(), request(test.c, test.world, 0), test.name)
			require.NoError(t, err)
			slots := map[plugin.Slot]int64{plugin.SlotBytes: test.bytes, plugin.SlotPriority: test.priority}
			launches := launchesAt(t, p, address, address, slots, nil)
			if test.gate == "" {
				require.Len(t, launches, 1, "%+v", test)
				continue
			}
			require.Len(t, launches, 2, "%+v", test)
			require.Equal(t, "shunt_gate_"+test.gate, launches[0].Name)
			require.Equal(t, []int64{1, 32}, []int64{launches[0].grid, launches[0].block})
			require.False(t, launches[1].dependent, "it would begin beside the gate")
		}
	}
}

// Whichever algorithm costs choose for these, there is a gate, unless it goes through channels.
func TestWhateverIsChosenHasAGate(t *testing.T) {
	for _, c := range []plugin.Collective{plugin.AllGather, plugin.ReduceScatter, plugin.AllToAll} {
		for _, world := range []int{2, 3, 4, 8} {
			r := request(c, world, 0)
			e := &endpoint{world: world}
			for _, a := range (Transport{}).Supports(r).Algorithms {
				p, err := e.Prepare(stdcontext.Background(), r, a.Name)
				require.NoError(t, err)
				for bytes := int64(gateFrom); bytes <= 1<<30; bytes += bytes / 32 * 16 {
					if bytes < a.MinBytes || (a.MaxBytes > 0 && bytes > a.MaxBytes) {
						continue
					}
					slots := map[plugin.Slot]int64{plugin.SlotBytes: bytes, plugin.SlotPriority: 1}
					l := launchesAt(t, p, 1<<40, 1<<40, slots, nil)
					if l[0].Name == "shunt_all_to_all_v" && world > 2 {
						continue
					}
					require.Contains(t, l[0].Name, "shunt_gate_", "%s of %d bytes among %d by %s", c, bytes, world, a.Name)
				}
			}
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
			l := launchesAt(t, p, 0, 0, slots, nil)
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
		for _, l := range launchesAt(t, p, 0, 0, slots, nil) {
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
			require.False(t, slices.ContainsFunc(grids, func(k string) bool { return strings.HasPrefix(k, "shunt_gate") }))
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
