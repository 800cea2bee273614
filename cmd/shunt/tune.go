package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/bench"
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// maxTuneSizes bounds the sizes of one collective, as tuning files do.
const maxTuneSizes = 64

func newTune() *cobra.Command {
	worlds := []int{4}
	least, most := sizeFlag(8), sizeFlag(16<<20)
	factor, root, iterations := 4, 0, 0
	dtype, op := dtypeFlag(plugin.Float32), opFlag(plugin.OpSum)
	budget := 20 * time.Millisecond
	memory := memoryFlag{auto: true}
	var collectives []string
	var transports, output string
	var graph, eager bool
	var limit time.Duration
	c := &cobra.Command{
		Use:   "tune",
		Short: "Measure every algorithm on this machine, and write the tuning file that makes the best ones chosen",
		Long: `Measure every algorithm on this machine, and write the tuning file that makes the
best ones chosen.

For every collective and size, all algorithms that could serve it run in turn over
real ranks, each on a communicator that may use no other, and every result is
checked. The tables say what each takes, which is best, what would have been chosen
without a file and what that costs. Then the file is written, real ranks load it,
and sizes are named for which they still do not take what was best.

The file holds for the numbers of ranks that are measured (-n 2,4), all on one host,
for the kind of memory, and, where --dtype or --op are given, for reductions with
these alone.
Beyond the largest size it extrapolates: measure up to what is used. On GPUs graphs
are replayed or, with --eager, single calls timed; algorithms that need symmetric
memory are measured too, on such memory. Operations are measured out of place; put
and get are not, as their windows belong to one communicator.
An algorithm that takes more than 8 times the best one's time at two sizes in a row,
and does not catch up, is not measured at larger ones ("slow").

SHUNT_ALGO and SHUNT_TUNING_FILE are not looked at; other variables are. All ranks
of a job need the same file; that is compared when they join. Exit status 1 when a
result was wrong (then no file is written), or a collective could not be measured.`,
		Example: "  shunt tune -n 2,4\n  shunt tune --memory cuda --max 1G -o tuning.json\n  shunt tune -n 2 --collective all_reduce,broadcast --dtype bfloat16",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := known(collectives, bench.TuneNames(), "%q cannot be tuned; %s"); err != nil {
				return err
			}
			switch {
			case graph && eager:
				return usage("--graph and --eager exclude each other: a tuning file has one cost for both")
			case output == "":
				return usage("-o names no file")
			case limit < 0:
				return usage("--limit %v is negative", limit)
			}
			kind, gpus, err := memory.choose(c.Context(), transports)
			if err != nil {
				return classify(err)
			}
			config := bench.Config{
				Collectives: collectives, Min: int64(least), Max: int64(most), Factor: int64(factor), DType: plugin.DType(dtype),
				Op:   plugin.Op(op),
				Root: root, Iterations: iterations, Budget: budget, Transport: transports, Memory: kind, Tune: true,
			}
			if kind == plugin.MemoryKindCuda {
				config.Modes = modesOf(graph, eager)
				if !c.Flags().Changed("ranks") {
					worlds = []int{min(gpus, 8)}
				}
				if !c.Flags().Changed("max") {
					config.Max = 256 << 20
				}
			} else if graph || eager {
				return usage("--graph and --eager are for --memory cuda, and memory is %s", kind)
			}
			if len(worlds) == 0 {
				return usage("-n names no number of ranks")
			}
			for _, world := range worlds {
				if err := checkWorld(world, 1); err != nil {
					return err
				}
				if _, err := gpuJob(kind, world, gpus, launch.Job{}); err != nil {
					return err
				}
				config.World = world
				if err := config.Check(); err != nil {
					return classify(err)
				}
			}
			if n := config.Sizes(); n > maxTuneSizes {
				return usage("%d sizes; at most %d", n, maxTuneSizes)
			}
			run := tuneRun{
				command: c, job: launch.Job{Env: []string{"SHUNT_ALGO=", "SHUNT_TUNING_FILE="},
					Bind: kind == plugin.MemoryKindHost},
				limit: limit, output: output, dtype: c.Flags().Changed("dtype"), op: c.Flags().Changed("op"),
				tuning: selector.Tuning{Comment: tuneComment(c, kind)},
			}
			return classify(run.all(config, worlds))
		},
	}
	f := c.Flags()
	f.StringVarP(&output, "output", "o", "shunt-tuning.json", "the tuning file to write")
	f.IntSliceVarP(&worlds, "ranks", "n", worlds, "numbers of ranks; one file serves all; on GPUs the default is all of them, 8 at most")
	f.Var(&memory, "memory", "where buffers lie: host, cuda, or auto: cuda where there are two GPUs at least")
	f.BoolVar(&graph, "graph", false, "on GPUs: replay graphs (the default)")
	f.BoolVar(&eager, "eager", false, "on GPUs: call one operation after the other")
	f.StringSliceVar(&collectives, "collective", nil, "what to tune (default: all): "+
		strings.Join(bench.TuneNames(), ", "))
	f.Var(&least, "min", "smallest size, of the whole buffer")
	f.Var(&most, "max", "largest size; on GPUs the default is 256M")
	f.IntVar(&factor, "factor", factor, "from one size to the next")
	f.Var(&dtype, "dtype", "type of the elements; where it is given, the file's reductions are for it alone")
	f.Var(&op, "op", "reduction op; where it is given, the file's reductions are for it alone")
	f.IntVar(&root, "root", root, "root of rooted collectives")
	f.IntVar(&iterations, "iters", 0, "operations timed for each algorithm and size; 0: as many as --budget allows, on GPUs by size")
	f.DurationVar(&budget, "budget", budget, "time spent on timing each algorithm and size in host memory")
	f.StringVar(&transports, "transport", "", "the transports to use, as SHUNT_TRANSPORTS has them")
	f.DurationVar(&limit, "limit", 0, "end a collective that takes longer; 0: a minute, or five times what it should take")
	return c
}
