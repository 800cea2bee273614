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

func newBench() *cobra.Command {
	worlds := []int{4}
	least, most := sizeFlag(8), sizeFlag(64<<20)
	factor, iterations, root, hosts := 4, 0, 0, 1
	dtype, op := dtypeFlag(plugin.Float32), opFlag(plugin.OpSum)
	budget := 40 * time.Millisecond
	var collectives []string
	memory := memoryFlag{auto: true}
	busy := 0
	var transport, algo, library, save, under string
	var against []string
	var limit time.Duration
	var noCheck, noInPlace, inPlace, graph, eager, symmetric, apart, bind bool
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
			if err := known(collectives, bench.Names(), "no measurement is called %q; %s"); err != nil {
				return err
			}
			if inPlace && noInPlace {
				return usage("--in-place and --no-in-place exclude each other")
			}
			if limit < 0 {
				return usage("--limit %v is negative", limit)
			}
			if err := areThere("transport", splitList(transport)...); err != nil {
				return err
			}
			others := slices.DeleteFunc(slices.Clone(against), func(name string) bool { return name == bench.NCCL })
			if err := areThere("against", others...); err != nil {
				return err
			}
			if err := checkUnder(under); err != nil {
				return err
			}
			kind, gpus, err := memory.choose(c, transport)
			if err != nil {
				return err
			}
			config := bench.Config{
				Collectives: collectives, Min: int64(least), Max: int64(most), Factor: int64(factor),
				DType: plugin.DType(dtype), Op: plugin.Op(op), Root: root, Iterations: iterations, Budget: budget,
				Transport: transport, NoCheck: noCheck, InPlace: !noInPlace, InPlaceOnly: inPlace,
				Memory: kind, Busy: busy, Against: against, Library: library, Symmetric: symmetric,
			}
			if kind == plugin.MemoryKindCuda {
				config.Modes = modesOf(graph, eager)
				if !c.Flags().Changed("ranks") {
					worlds = []int{min(gpus, 8)}
				}
				for _, world := range worlds {
					if _, err := gpuJob(kind, world, gpus, launch.Job{}); err != nil {
						return err
					}
				}
			} else if graph || eager || busy != 0 || len(against) > 0 || symmetric {
				return usage("--graph, --eager, --busy, --symmetric and --against are for --memory cuda, and memory is %s", kind)
			}
			if !c.Flags().Changed("apart") {
				apart = len(config.Rivals()) > 0
			}
			if limit > 0 && !apart {
				return usage("--limit is for --apart")
			}
			if library != "" && !slices.Contains(against, "nccl") {
				return usage("--nccl is for --against nccl")
			}
			for _, world := range worlds {
				if err := checkWorld(world, hosts); err != nil {
					return err
				}
				config.World = world
				if err := config.Check(); err != nil {
					return err
				}
			}
			var env []string
			if algo != "" {
				env = append(env, "SHUNT_ALGO="+algo)
			}
			if eager && !graph && os.Getenv("SHUNT_TUNING_MODE") == "" {
				env = append(env, "SHUNT_TUNING_MODE="+string(bench.Eager))
			}
			run := benchRun{
				command: c, job: launch.Job{Env: env, Hosts: hosts, Bind: bind && kind == plugin.MemoryKindHost},
				apart: apart, limit: limit, save: save, under: under,
			}
			for _, world := range worlds {
				config.World = world
				if err := run.world(config); err != nil {
					return stopped(c, err, run.results)
				}
			}
			return run.end()
		},
	}
	f := c.Flags()
	f.IntSliceVarP(&worlds, "ranks", "n", worlds, "number of ranks; several are measured one after the other; on GPUs the default is all of them, 8 at most")
	f.Var(&memory, "memory", "where buffers lie: host, cuda, or auto: cuda where there are two GPUs at least")
	f.BoolVar(&graph, "graph", false, "on GPUs: replay graphs (the default)")
	f.BoolVar(&eager, "eager", false, "on GPUs: call one operation after the other")
	f.IntVar(&busy, "busy", 0, "on GPUs: percent of the multiprocessors that kernels of 0.1 ms hold meanwhile")
	f.StringSliceVar(&against, "against", nil, "on GPUs: compare with nccl, or with Shunt over other transports, in turn")
	f.BoolVar(&symmetric, "symmetric", false, "on GPUs: measure Shunt in windows too, whose memory is symmetric")
	f.BoolVar(&apart, "apart", false, "give every collective processes of its own (the default where something is compared)")
	f.DurationVar(&limit, "limit", 0, "with --apart: end a collective that takes longer; 0: a minute, or five times what it should take")
	f.BoolVar(&bind, "bind", true, bindHelp)
	f.StringVar(&under, "under", "", "run rank 0 under this command, such as a profiler, as a shell reads it")
	f.Var((*outputFile)(&save), "save", "write the results so far, as with --json, into this file after every collective")
	f.StringVar(&library, "nccl", "", "path of NCCL's library (default libnccl.so.2)")
	f.StringSliceVar(&collectives, "collective", nil, "what to measure (default: all): "+strings.Join(bench.Names(), ", "))
	f.Var(&least, "min", "smallest size")
	f.Var(&most, "max", "largest size")
	f.IntVar(&factor, "factor", factor, "factor from one size to the next")
	f.Var(&dtype, "dtype", "type of the elements")
	f.Var(&op, "op", "reduction op")
	f.IntVar(&root, "root", root, "root of rooted collectives")
	f.IntVar(&iterations, "iters", 0, "operations timed for each row; 0: as many as --budget allows, on GPUs by size")
	f.DurationVar(&budget, "budget", budget, "time spent on timing each row of host memory")
	f.IntVar(&hosts, "hosts", hosts, "pretend that the ranks run on this many hosts")
	f.StringVar(&transport, "transport", "", "the one transport to use: builtin:NAME, shared:PATH or process:PATH")
	f.Var((*override)(&algo), "algo", "set SHUNT_ALGO")
	f.BoolVar(&noCheck, "no-check", false, "do not check results")
	f.BoolVar(&noInPlace, "no-in-place", false, "measure out of place only")
	f.BoolVar(&inPlace, "in-place", false, "measure in place only, where an operation can run in place")
	return c
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
