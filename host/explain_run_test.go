package host_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// longestRun is the longest message of runsWhatIsExplained.
const longestRun = 40 << 10

// runsWhatIsExplained calls every collective at both ends of each range of sizes that Explain tells of, and compares
// what it names with what the records say has run.
func (r *rank) runsWhatIsExplained(ran map[string]bool) error {
	b, done := r.buffers(r.World()*longestRun/4, r.World()*longestRun/4)
	for _, collective := range plugin.Collectives() {
		if collective.OneSided() || collective == plugin.Barrier {
			continue // they have no sizes to choose by
		}
		for from := int64(0); from <= longestRun; {
			e, err := r.Explain(collective, plugin.Uint8, plugin.OpSum, from)
			if err != nil {
				return done(err)
			}
			for _, bytes := range slices.Compact([]int64{from, min(e.To, longestRun)}) {
				blocks := make([]int64, r.World()) // the longest is the last rank's
				for i := range blocks {
					blocks[i] = bytes * int64(i+1) / int64(r.World())
				}
				op := host.Operation{Collective: collective, DType: plugin.Uint8, Op: plugin.OpSum, Count: bytes,
					Send: pointer(b[0]), Recv: pointer(b[1]), Stream: r}
				switch collective {
				case plugin.AllGatherV, plugin.GatherV:
					op.RecvCounts, op.Count = blocks, blocks[r.Rank()]
				case plugin.ReduceScatterV, plugin.ScatterV:
					op.SendCounts, op.Count = blocks, blocks[r.Rank()]
				case plugin.AllToAllV:
					op.SendCounts = slices.Repeat(blocks[r.Rank():r.Rank()+1], r.World())
					op.RecvCounts = blocks
				case plugin.Send, plugin.Recv: // rank 0 to rank 1
					if op.Collective = plugin.Send; r.Rank() == 1 {
						op.Collective = plugin.Recv
					}
					if op.Root = 1 - r.Rank(); r.Rank() > 1 {
						continue
					}
				}
				if err := errors.Join(r.Do(&op), r.sync()); err != nil {
					return done(fmt.Errorf("%s of %d bytes: %w", collective, bytes, err))
				}
				records := r.Records()
				if last := records[len(records)-1].Plan; !strings.HasPrefix(last, e.Chosen+", ") {
					return done(fmt.Errorf("%s of %d bytes runs %s, and Explain says %s (%d to %d bytes)", collective, bytes, last,
						e.Chosen, e.From, e.To))
				}
				if r.Rank() == 0 {
					ran[e.Chosen] = true
				}
			}
			if e.To > longestRun {
				break
			}
			from = e.To + 1
		}
	}
	return done(r.meet())
}

// Explain names what a call runs: by estimates, by a file's costs that change between algorithms often, and forced, on
// ranks that have NCCL beside kernels.
func TestExplainNamesWhatRuns(t *testing.T) {
	withNCCL(t)
	var turns selector.Tuning
	for _, collective := range []string{"all_reduce", "all_gather_v", "reduce_scatter", "broadcast", "send"} {
		for first, algorithm := range []string{"nccl/tuned", "cudaipc/one_shot_ll", "cudaipc/ll"} {
			e := selector.Entry{Collective: collective, Algorithm: algorithm}
			for i := range 12 {
				e.Points = append(e.Points, selector.Point{Bytes: int64(1 + 999*i), Microseconds: float64(1 + (i+first)%2*9)})
			}
			turns.Entries = append(turns.Entries, e)
		}
	}
	file := filepath.Join(t.TempDir(), "turns.json")
	require.NoError(t, turns.WriteFile(file))
	ran := map[string]bool{}
	for _, c := range []struct{ algo, file string }{
		{"", ""}, {"", file}, {"*:1000-20000=nccl", ""}, {"all_reduce:3000-=nccl;broadcast:-2K=nccl;*=cudaipc", file},
	} {
		require.NoError(t, errors.Join(deviceErrors(t, gpus(t, 3), func(rank int, o *host.Options) {
			both(c.algo)(rank, o)
			o.TuningFile = c.file
		}, func(r *rank) error { return r.runsWhatIsExplained(ran) })...), "SHUNT_ALGO=%s, file %q", c.algo, c.file)
	}
	require.GreaterOrEqual(t, len(ran), 6, "%v", ran)
}
