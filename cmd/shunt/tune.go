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
	var transports, output, library string
	var graph, eager, regret, bind bool
	var limit time.Duration
	c := &cobra.Command{
		Use:   "tune",
		Short: "Measure every algorithm on this machine, and write the tuning file that makes the best ones chosen",
		Long: `Measure every algorithm on this machine, and write the tuning file that makes the
best ones chosen.

For every collective and size, all algorithms that could serve it run in turn over
real ranks, each on a communicator that may use no other, and every result is
checked. The tables show the time of each, the best one, the one that would be chosen
without a file, and what that costs. Then the file is written, real ranks load it,
and the sizes are listed at which they still do not use the best one.

The file holds for the numbers of ranks that are measured (-n 2,4), all on one host,
for the kind of memory, the class of machine (h200-nvlink), and, where --dtype or
--op are given, for reductions of such dtypes (integer, float, half or float8) or of
that op alone.
Beyond the largest size runs what is best there: measure up to what is used. What
runs without a file stays where no other one is clearly faster. On GPUs graphs
are replayed or, with --eager, single calls timed; with both flags the file has costs
of both, of which SHUNT_TUNING_MODE chooses. Algorithms that need symmetric memory
are measured too, on such memory. Operations are measured out of place; put
and get are not, as their windows belong to one communicator.
An algorithm that takes more than 8 times the best one's time at two sizes in a row,
and does not catch up, is not measured at larger ones ("slow"). In host memory each
rank is bound to a CPU of its own where there are enough: programs should run so
too (shunt run --bind), or be tuned with --bind=false.

With --regret nothing is written. What is chosen, with the present tuning file or
without, is measured in turn with every algorithm and, with --nccl on GPUs, with NCCL
on plain memory and on registered windows. A table says at which sizes the choice
takes more than 3 % longer than the best, and why that was not chosen.

SHUNT_ALGO is not looked at, and SHUNT_TUNING_FILE only with --regret; other variables
are. Of a job, rank 0's file counts for all ranks. Exit status 1 when a
result was wrong (then no file is written), or a collective could not be measured.`,
		Example: "  shunt tune -n 2,4\n  shunt tune --memory cuda --max 1G -o tuning.json\n  shunt tune -n 2 --collective all_reduce,broadcast --dtype bfloat16\n  shunt tune --regret --graph --eager --max 1G --nccl libnccl.so.2",
		Args:    flagsOnly,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := known(collectives, bench.TuneNames(), "%q cannot be tuned; %s"); err != nil {
				return err
			}
			switch {
			case output == "":
				return usage("-o names no file")
			case regret && c.Flags().Changed("output"):
				return usage("--regret writes no file, and -o names one")
			case library != "" && !regret:
				return usage("--nccl is for --regret")
			case limit < 0:
				return usage("--limit %v is negative", limit)
			}
			if err := areThere("transport", splitList(transports)...); err != nil {
				return err
			}
			kind, gpus, err := memory.choose(c, transports)
			if err != nil {
				return err
			}
			config := bench.Config{
				Collectives: collectives, Min: int64(least), Max: int64(most), Factor: int64(factor), DType: plugin.DType(dtype),
				Op:   plugin.Op(op),
				Root: root, Iterations: iterations, Budget: budget, Transport: transports, Memory: kind, Tune: true, Regret: regret,
			}
			modes := []bench.Mode{""}
			if kind == plugin.MemoryKindCuda {
				modes = modesOf(graph, eager)
				if !c.Flags().Changed("ranks") {
					worlds = []int{min(gpus, 8)}
				}
				if !c.Flags().Changed("max") {
					config.Max = 256 << 20
					if regret {
						config.Max = 1 << 30
					}
				}
				if regret {
					config.Symmetric = true
				}
				if library != "" {
					config.Against, config.Library = []string{bench.NCCL}, library
				}
			} else if graph || eager || library != "" {
				return usage("--graph, --eager and --nccl are for --memory cuda, and memory is %s", kind)
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
					return err
				}
			}
			if n := config.Sizes(); n > maxTuneSizes {
				return usage("--min, --max and --factor give %d sizes, want at most %d", n, maxTuneSizes)
			}
			run := tuneRun{
				command: c, job: launch.Job{Bind: bind && kind == plugin.MemoryKindHost},
				limit: limit, output: output, tuning: selector.Tuning{Comment: tuneComment(c, kind)},
				only: bench.Only{DType: c.Flags().Changed("dtype"), Op: c.Flags().Changed("op"), Mode: len(modes) > 1},
			}
			return run.all(config, worlds, modes)
		},
	}
	f := c.Flags()
	f.StringVarP(&output, "output", "o", "shunt-tuning.json", "the tuning file to write")
	f.IntSliceVarP(&worlds, "ranks", "n", worlds, "numbers of ranks; one file serves all; on GPUs the default is all of them, 8 at most")
	f.Var(&memory, "memory", "where buffers lie: host, cuda, or auto: cuda where there are two GPUs at least")
	f.BoolVar(&regret, "regret", false, "write no file; compare what is chosen with all that could be, and with NCCL")
	f.StringVar(&library, "nccl", "", "with --regret on GPUs: compare with NCCL, whose library this is the path of")
	f.BoolVar(&graph, "graph", false, "on GPUs: replay graphs (the default)")
	f.BoolVar(&eager, "eager", false, "on GPUs: call one operation after the other; with --graph both are measured")
	f.StringSliceVar(&collectives, "collective", nil, "what to tune (default: all): "+
		strings.Join(bench.TuneNames(), ", "))
	f.Var(&least, "min", "smallest size, of the whole buffer")
	f.Var(&most, "max", "largest size; on GPUs the default is 256M, with --regret 1G")
	f.IntVar(&factor, "factor", factor, "factor from one size to the next")
	f.Var(&dtype, "dtype", "type of the elements; where it is given, the file's reductions are for such types alone")
	f.Var(&op, "op", "reduction op; where it is given, the file's reductions are for it alone")
	f.BoolVar(&bind, "bind", true, bindHelp)
	f.IntVar(&root, "root", root, "root of rooted collectives")
	f.IntVar(&iterations, "iters", 0, "operations timed for each algorithm and size; 0: as many as --budget allows, on GPUs by size")
	f.DurationVar(&budget, "budget", budget, "time spent on timing each algorithm and size in host memory")
	f.StringVar(&transports, "transport", "", "the transports to use, as SHUNT_TRANSPORTS has them")
	f.DurationVar(&limit, "limit", 0, "end a collective that takes longer; 0: a minute, or five times what it should take")
	return c
}
