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

// tuneFlags is the command tune, and its flags.
type tuneFlags struct {
	config             bench.Config
	worlds             []int
	least, most        sizeFlag
	dtype              dtypeFlag
	op                 opFlag
	memory             memoryFlag
	output             string
	limit              time.Duration
	graph, eager, bind bool
	modes              []bench.Mode
}

func newTune() *cobra.Command {
	t := tuneFlags{worlds: []int{4}, least: 8, most: 16 << 20, dtype: dtypeFlag(plugin.Float32), op: opFlag(plugin.OpSum),
		memory: memoryFlag{auto: true}}
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
			if err := t.check(c); err != nil {
				return err
			}
			return t.start(c)
		},
	}
	t.flags(c)
	return c
}

func (t *tuneFlags) flags(c *cobra.Command) {
	f, config := c.Flags(), &t.config
	f.StringVarP(&t.output, "output", "o", "shunt-tuning.json", "the tuning file to write")
	f.IntSliceVarP(&t.worlds, "ranks", "n", t.worlds, "numbers of ranks; one file serves all; on GPUs the default is all of them, 8 at most")
	f.Var(&t.memory, "memory", "where buffers lie: host, cuda, or auto: cuda where there are two GPUs at least")
	f.BoolVar(&config.Regret, "regret", false, "write no file; compare what is chosen with all that could be, and with NCCL")
	f.StringVar(&config.Library, "nccl", "", "with --regret on GPUs: compare with NCCL, whose library this is the path of")
	f.BoolVar(&t.graph, "graph", false, "on GPUs: replay graphs (the default)")
	f.BoolVar(&t.eager, "eager", false, "on GPUs: call one operation after the other; with --graph both are measured")
	f.StringSliceVar(&config.Collectives, "collective", nil, "what to tune (default: all): "+
		strings.Join(bench.TuneNames(), ", "))
	f.Var(&t.least, "min", "smallest size, of the whole buffer")
	f.Var(&t.most, "max", "largest size; on GPUs the default is 256M, with --regret 1G")
	f.Int64Var(&config.Factor, "factor", 4, "factor from one size to the next")
	f.Var(&t.dtype, "dtype", "type of the elements; where it is given, the file's reductions are for such types alone")
	f.Var(&t.op, "op", "reduction op; where it is given, the file's reductions are for it alone")
	f.BoolVar(&t.bind, "bind", true, bindHelp)
	f.IntVar(&config.Root, "root", 0, "root of rooted collectives")
	f.IntVar(&config.Iterations, "iters", 0, "operations timed for each algorithm and size; 0: as many as --budget allows, on GPUs by size")
	f.DurationVar(&config.Budget, "budget", 20*time.Millisecond, "time spent on timing each algorithm and size in host memory")
	f.StringVar(&config.Transport, "transport", "", "the transports to use, as SHUNT_TRANSPORTS has them")
	f.DurationVar(&t.limit, "limit", 0, "end a collective that takes longer; 0: a minute, or five times what it should take")
}

// check rejects flags that do not go together, and completes what they say is to be measured.
func (t *tuneFlags) check(c *cobra.Command) error {
	config := &t.config
	if err := known(config.Collectives, bench.TuneNames(), "%q cannot be tuned; %s"); err != nil {
		return err
	}
	switch {
	case t.output == "":
		return usage("-o names no file")
	case config.Regret && c.Flags().Changed("output"):
		return usage("--regret writes no file, and -o names one")
	case config.Library != "" && !config.Regret:
		return usage("--nccl is for --regret")
	case t.limit < 0:
		return usage("--limit %v is negative", t.limit)
	}
	if err := areThere("transport", splitList(config.Transport)...); err != nil {
		return err
	}
	kind, gpus, err := t.memory.choose(c, config.Transport)
	if err != nil {
		return err
	}
	config.Tune, config.Memory, config.Min, config.Max = true, kind, int64(t.least), int64(t.most)
	config.DType, config.Op = plugin.DType(t.dtype), plugin.Op(t.op)
	t.modes = []bench.Mode{""}
	if kind == plugin.MemoryKindCuda {
		t.onGPUs(c, gpus)
	} else if t.graph || t.eager || config.Library != "" {
		return usage("--graph, --eager and --nccl are for --memory cuda, and memory is %s", kind)
	}
	if len(t.worlds) == 0 {
		return usage("-n names no number of ranks")
	}
	for _, world := range t.worlds {
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
	return nil
}

// onGPUs sets the defaults that differ there.
func (t *tuneFlags) onGPUs(c *cobra.Command, gpus int) {
	config := &t.config
	t.modes = modesOf(t.graph, t.eager)
	if !c.Flags().Changed("ranks") {
		t.worlds = []int{min(gpus, 8)}
	}
	if !c.Flags().Changed("max") {
		config.Max = 256 << 20
		if config.Regret {
			config.Max = 1 << 30
		}
	}
	config.Symmetric = config.Regret
	if config.Library != "" {
		config.Against = []string{bench.NCCL}
	}
}

// start measures, and writes the file.
func (t *tuneFlags) start(c *cobra.Command) error {
	onHost := t.config.Memory == plugin.MemoryKindHost
	run := tuneRun{
		command: c, job: launch.Job{Bind: t.bind && onHost}, limit: t.limit, output: t.output,
		tuning: selector.Tuning{Comment: tuneComment(c, t.config.Memory)},
		only:   bench.Only{DType: c.Flags().Changed("dtype"), Op: c.Flags().Changed("op"), Mode: len(t.modes) > 1},
	}
	return run.all(t.config, t.worlds, t.modes)
}
