package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/bench"
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/plugin"
)

// benchFlags is the command bench, and its flags.
type benchFlags struct {
	config                        bench.Config
	worlds                        []int
	hosts                         int
	least, most                   sizeFlag
	dtype                         dtypeFlag
	op                            opFlag
	memory                        memoryFlag
	algo, save, under             string
	limit                         time.Duration
	noInPlace, graph, eager, bind bool
	apart                         bool // every collective in processes of its own
}

func newBench() *cobra.Command {
	b := benchFlags{worlds: []int{4}, least: 8, most: 64 << 20, dtype: dtypeFlag(plugin.Float32), op: opFlag(plugin.OpSum),
		memory: memoryFlag{auto: true}}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure collectives over real ranks, and check every result",
		Long: `Measure collectives over real ranks, and check every result.

Starts the ranks as processes of this machine, runs every collective over a
range of sizes, out of place and in place, and prints the columns of nccl-tests.
Sizes are those of the whole buffer, time is that of the slowest rank. Exit
status 1 when any element of any result is wrong. In host memory each rank is bound
to a CPU of its own where there are enough, as shunt run --bind does; ranks that are
not, as those of shunt run, torchrun and mpirun by default, may take a multiple of
the time for short messages. See --bind.

On a machine with GPUs every rank takes one, and buffers lie in its memory.
Operations are captured in a graph and replayed, or, with --eager, called one
after the other; --graph --eager measures both. Times are the GPU's own, by
events. Several buffers rotate, so that no cache holds them. --against nccl
measures NCCL in turn with Shunt, in the same processes and on the same stream:
on plain memory, and on memory registered as a symmetric window. --against with a
transport measures Shunt over that one too, in turn in the same way.

Where something is compared every collective has processes of its own, so that
one that fails or hangs (--limit) costs its own rows only, and the exit status.`,
		Example: "  shunt bench\n  shunt bench -n 2,4 --collective all_reduce,broadcast --max 1M --factor 2 --json\n" +
			"  shunt bench --memory cuda --graph --eager --max 1G --against nccl --symmetric\n" +
			"  shunt bench --memory cuda --busy 50 --against process:./shunt-transport-cudaipc",
		Args: flagsOnly,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := b.check(c); err != nil {
				return err
			}
			return b.start(c)
		},
	}
	b.flags(c)
	return c
}

func (b *benchFlags) flags(c *cobra.Command) {
	f, config := c.Flags(), &b.config
	f.IntSliceVarP(&b.worlds, "ranks", "n", b.worlds, "number of ranks; several are measured one after the other; on GPUs the default is all of them, 8 at most")
	f.Var(&b.memory, "memory", "where buffers lie: host, cuda, or auto: cuda where there are two GPUs at least")
	f.BoolVar(&b.graph, "graph", false, "on GPUs: replay graphs (the default)")
	f.BoolVar(&b.eager, "eager", false, "on GPUs: call one operation after the other")
	f.IntVar(&config.Busy, "busy", 0, "on GPUs: percent of the multiprocessors that kernels of 0.1 ms hold meanwhile")
	f.StringSliceVar(&config.Against, "against", nil, "on GPUs: compare with nccl, or with Shunt over other transports, in turn")
	f.BoolVar(&config.Symmetric, "symmetric", false, "on GPUs: measure Shunt in windows too, whose memory is symmetric")
	f.BoolVar(&b.apart, "apart", false, "give every collective processes of its own (the default where something is compared)")
	f.DurationVar(&b.limit, "limit", 0, "with --apart: end a collective that takes longer; 0: a minute, or five times what it should take")
	f.BoolVar(&b.bind, "bind", true, bindHelp)
	f.StringVar(&b.under, "under", "", "run rank 0 under this command, such as a profiler, as a shell reads it")
	f.Var((*outputFile)(&b.save), "save", "write the results so far, as with --json, into this file after every collective")
	f.StringVar(&config.Library, "nccl", "", "path of NCCL's library (default libnccl.so.2)")
	f.StringSliceVar(&config.Collectives, "collective", nil, "what to measure (default: all): "+
		strings.Join(bench.Names(), ", "))
	f.Var(&b.least, "min", "smallest size")
	f.Var(&b.most, "max", "largest size")
	f.Int64Var(&config.Factor, "factor", 4, "factor from one size to the next")
	f.Var(&b.dtype, "dtype", "type of the elements")
	f.Var(&b.op, "op", "reduction op")
	f.IntVar(&config.Root, "root", 0, "root of rooted collectives")
	f.IntVar(&config.Iterations, "iters", 0, "operations timed for each row; 0: as many as --budget allows, on GPUs by size")
	f.DurationVar(&config.Budget, "budget", 40*time.Millisecond, "time spent on timing each row of host memory")
	f.IntVar(&b.hosts, "hosts", 1, "pretend that the ranks run on this many hosts")
	f.StringVar(&config.Transport, "transport", "", "the one transport to use: builtin:NAME, shared:PATH or process:PATH")
	f.Var((*override)(&b.algo), "algo", "set SHUNT_ALGO")
	f.BoolVar(&config.NoCheck, "no-check", false, "do not check results")
	f.BoolVar(&b.noInPlace, "no-in-place", false, "measure out of place only")
	f.BoolVar(&config.InPlaceOnly, "in-place", false, "measure in place only, where an operation can run in place")
}

// check rejects flags that do not go together, and completes what they say is to be measured.
func (b *benchFlags) check(c *cobra.Command) error {
	config := &b.config
	if err := known(config.Collectives, bench.Names(), "no measurement is called %q; %s"); err != nil {
		return err
	}
	if config.InPlaceOnly && b.noInPlace {
		return usage("--in-place and --no-in-place exclude each other")
	}
	if b.limit < 0 {
		return usage("--limit %v is negative", b.limit)
	}
	if err := areThere("transport", splitList(config.Transport)...); err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(config.Against), func(name string) bool { return name == bench.NCCL })
	if err := areThere("against", others...); err != nil {
		return err
	}
	if err := checkUnder(b.under); err != nil {
		return err
	}
	if err := b.place(c); err != nil {
		return err
	}
	if !c.Flags().Changed("apart") {
		b.apart = len(config.Rivals()) > 0
	}
	if b.limit > 0 && !b.apart {
		return usage("--limit is for --apart")
	}
	if config.Library != "" && !slices.Contains(config.Against, bench.NCCL) {
		return usage("--nccl is for --against nccl")
	}
	config.Min, config.Max, config.InPlace = int64(b.least), int64(b.most), !b.noInPlace
	config.DType, config.Op = plugin.DType(b.dtype), plugin.Op(b.op)
	for _, world := range b.worlds {
		if err := checkWorld(world, b.hosts); err != nil {
			return err
		}
		config.World = world
		if err := config.Check(); err != nil {
			return err
		}
	}
	return nil
}

// place chooses the memory, and on GPUs the modes and the number of ranks.
func (b *benchFlags) place(c *cobra.Command) error {
	config := &b.config
	kind, gpus, err := b.memory.choose(c, config.Transport)
	if err != nil {
		return err
	}
	config.Memory = kind
	if kind != plugin.MemoryKindCuda {
		if b.graph || b.eager || config.Busy != 0 || len(config.Against) > 0 || config.Symmetric {
			return usage("--graph, --eager, --busy, --symmetric and --against are for --memory cuda, and memory is %s", kind)
		}
		return nil
	}
	config.Modes = modesOf(b.graph, b.eager)
	if !c.Flags().Changed("ranks") {
		b.worlds = []int{min(gpus, 8)}
	}
	for _, world := range b.worlds {
		if _, err := gpuJob(kind, world, gpus, launch.Job{}); err != nil {
			return err
		}
	}
	return nil
}

// start measures one world after the other.
func (b *benchFlags) start(c *cobra.Command) error {
	var env []string
	if b.algo != "" {
		env = append(env, "SHUNT_ALGO="+b.algo)
	}
	if b.eager && !b.graph && os.Getenv("SHUNT_TUNING_MODE") == "" {
		env = append(env, "SHUNT_TUNING_MODE="+string(bench.Eager))
	}
	run := benchRun{
		command: c, job: launch.Job{Env: env, Hosts: b.hosts, Bind: b.bind && b.config.Memory == plugin.MemoryKindHost},
		apart: b.apart, limit: b.limit, save: b.save, under: b.under,
	}
	for _, world := range b.worlds {
		b.config.World = world
		if err := run.world(b.config); err != nil {
			return stopped(c, err, run.results)
		}
	}
	return run.end()
}

// bindHelp is the help of --bind where it is the default.
const bindHelp = "in host memory: bind each rank to a CPU of its own, if there are enough"

// binds reports whether the launcher binds the ranks of a job: there are enough CPUs.
func binds(job launch.Job, world int) bool {
	cpus, _ := launch.CPUs()
	return job.Bind && cpus >= world
}

// checkUnder rejects a command whose program is not there, unless a shell has to find its name first.
func checkUnder(command string) error {
	words := strings.Fields(command)
	if len(words) == 0 || strings.ContainsAny(words[0], "$`'\"\\~*?[{") {
		return nil
	}
	if _, err := exec.LookPath(words[0]); err != nil {
		return usage("--under: %v", err)
	}
	return nil
}

// modesOf returns the modes that two flags ask for.
func modesOf(graph, eager bool) []bench.Mode {
	switch {
	case graph && eager:
		return []bench.Mode{bench.Graph, bench.Eager}
	case eager:
		return []bench.Mode{bench.Eager}
	}
	return []bench.Mode{bench.Graph}
}
