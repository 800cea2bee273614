package cudaipc

import (
	stdcontext "context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// gridsOf returns the blocks of each kernel that a plan launches, by track.
func gridsOf(t *testing.T, p *plugin.Plan, slots map[plugin.Slot]int64, arrays []int64) [][]int64 {
	tracks := make([][]int64, len(p.Tracks))
	eachStep(t, p, 1<<40, slots, arrays, func(track int, s *plugin.Step, regs []int64, _ func(uint16) (int64, string)) {
		if s.Kind == plugin.StepLaunch {
			require.NotEqual(t, plugin.LaunchDependent, s.B,
				"one that begins beside the one before it takes its multiprocessors again")
			k := p.Kernels[s.A]
			tracks[track] = append(tracks[track], regs[k.Grid[0]]*max(regs[k.Grid[1]], 1))
		}
	})
	return tracks
}

// requests returns all that an endpoint can be asked for.
func requests(world, rank int) (all []plugin.Request) {
	for c := plugin.AllReduce; c.Valid(); c++ {
		all = append(all, request(c, world, rank), symmetricRequest(c, world, rank))
	}
	return append(all, counted(world, rank))
}

// Kernels of tracks run beside each other. Running anything beside another
// thing takes at least two of one block each.
func TestNoLaunchExceedsTheBudget(t *testing.T) {
	for _, budget := range []int{1, 2, 3, 8, 24, 63, 64, 1000} {
		for world := 1; world <= maxRanks; world++ {
			for _, rank := range []int{0, world - 1} {
				for _, r := range requests(world, rank) {
					e := &endpoint{world: world, rank: rank, maxSMs: budget}
					for _, a := range (Transport{}).Supports(r).Algorithms {
						p, err := e.Prepare(stdcontext.Background(), r, a.Name)
						require.NoError(t, err)
						for bytes := int64(1); bytes < 1<<36; bytes *= 5 {
							arrays := make([]int64, 4*world)
							for i := range arrays {
								arrays[i] = bytes
							}
							sum := int64(0)
							for _, grids := range gridsOf(t, p, map[plugin.Slot]int64{
								plugin.SlotBytes: bytes, plugin.SlotSendBytes: bytes, plugin.SlotRecvBytes: bytes,
								plugin.SlotPriority: bytes % 2,
							}, arrays) {
								most := int64(0)
								for _, blocks := range grids {
									require.Positive(t, blocks)
									most = max(most, blocks)
								}
								sum += most
							}
							require.LessOrEqual(t, sum, int64(max(budget, len(p.Tracks))), "%s %s of %d bytes, rank %d of %d", r.Collective,
								a.Name, bytes, rank, world)
						}
					}
				}
			}
		}
	}
}

// Blocks of the same number meet, so where a kernel takes a message in turns its grid is
// the same on all ranks, whatever each of them sends and receives.
func TestGridsOfABudgetDoNotDependOnWhatARankSends(t *testing.T) {
	for _, world := range []int{2, 3, 4, 8} {
		for _, budget := range []int{1, 7, 8, 31} {
			for _, c := range []plugin.Collective{plugin.AllToAllV, plugin.Send, plugin.Gather} {
				e := &endpoint{world: world, maxSMs: budget}
				p, err := e.Prepare(stdcontext.Background(), request(c, world, 0), "ll128")
				require.NoError(t, err)
				grids := map[int64]bool{}
				for _, bytes := range []int64{0, 1, 480, 8 * kib, 512 * kib, 2 * mib, 1 << 30} {
					arrays := make([]int64, 4*world)
					arrays[world-1] = bytes // only one pair has a message
					for _, blocks := range gridsOf(t, p, map[plugin.Slot]int64{plugin.SlotBytes: bytes,
						plugin.SlotRoot: int64(world - 1)}, arrays)[0] {
						grids[blocks] = true
					}
				}
				require.Len(t, grids, 1, "%s in a world of %d with %d multiprocessors: %v", c, world, budget, grids)
			}
		}
	}
}

// Only a budget whose kernels for long messages have a smaller grid than that for short ones may have needs the kernel
// with a loop over its turns. A rank may launch either, and blocks that take several turns take them in another order
// than blocks that take one: with one resident block on each GPU, three and five ranks waited for each other.
func TestTurnsAreForSmallBudgets(t *testing.T) {
	for _, test := range []struct {
		world, budget int
		kernel        string
	}{
		{2, 0, "shunt_all_to_all_v"}, {2, 32, "shunt_all_to_all_v"}, {2, 31, "shunt_all_to_all_v_in_turns"},
		{4, 0, "shunt_all_to_all_v"}, {4, 63, "shunt_all_to_all_v_in_turns"}, {3, 64, "shunt_all_to_all_v"},
		{3, 63, "shunt_all_to_all_v_in_turns"}, {5, 63, "shunt_all_to_all_v_in_turns"}, {8, 1, "shunt_all_to_all_v_in_turns"},
	} {
		e := &endpoint{world: test.world, maxSMs: test.budget}
		for _, c := range []plugin.Collective{plugin.AllToAllV, plugin.Send, plugin.Gather} {
			p, err := e.Prepare(stdcontext.Background(), request(c, test.world, 0), "ll128")
			require.NoError(t, err)
			slots := map[plugin.Slot]int64{plugin.SlotBytes: 8 * kib, plugin.SlotRoot: 1}
			eachStep(t, p, 1<<40, slots, make([]int64, 4*test.world),
				func(_ int, s *plugin.Step, _ []int64, _ func(uint16) (int64, string)) {
					if s.Kind == plugin.StepLaunch {
						require.Equal(t, test.kernel, p.Kernels[s.A].Name, "%s in a world of %d with %d multiprocessors", c, test.world,
							test.budget)
					}
				})
		}
	}
}
