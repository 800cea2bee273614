package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/bench/peers"
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/bench"
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/internal/outfile"
	"github.com/shunt-ccl/shunt/internal/peertable"
	"github.com/shunt-ccl/shunt/plugin"
)

// peerCollectives lists the collectives that the programs of bench/peers can measure.
var peerCollectives = []string{"all_reduce", "all_gather", "all_to_all", "broadcast", "reduce_scatter"}

// openMPI is the name of that contender.
const openMPI = "openmpi"

func newBenchPeers() *cobra.Command {
	worlds := []int{2, 4}
	least, most := sizeFlag(8), sizeFlag(64<<20)
	factor, rounds := 4, 3
	budget := 60 * time.Millisecond
	collectives := slices.Clone(peerCollectives)
	reference, against := "builtin:shm", []string{openMPI}
	var write string
	var atLeast float64
	c := &cobra.Command{
		Use:   "bench-peers",
		Short: "Compare with Open MPI, or carriers with each other, in one run",
		Long: `Compare with Open MPI, or carriers with each other, in one run.

Every contender runs every collective in turn, round after round; the time of a
size is the median over the rounds of the slowest rank's mean. Ratios are the
other's time over Shunt's: above 1 Shunt is faster. A contender is openmpi, which
needs mpicc and mpirun, or a transport as SHUNT_TRANSPORTS names it. A transport
that is named twice is compared with itself, which shows the noise.`,
		Example: "  shunt bench-peers\n  shunt bench-peers --against process:./shunt-transport-shm",
		Args:    flagsOnly,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, name := range collectives {
				if !slices.Contains(peerCollectives, name) && slices.Contains(against, openMPI) {
					return usage("Open MPI is not measured for %q; it is for %s", name, strings.Join(peerCollectives, ", "))
				}
			}
			slices.SortFunc(collectives, func(a, b string) int {
				return slices.Index(bench.Names(), a) - slices.Index(bench.Names(), b)
			})
			others := slices.DeleteFunc(slices.Clone(against), func(name string) bool { return name == openMPI })
			if err := areThere("against", others...); err != nil {
				return err
			}
			if err := areThere("transport", splitList(reference)...); err != nil {
				return err
			}
			if rounds < 1 {
				return usage("--rounds is %d, want 1 or more", rounds)
			}
			config := bench.Config{Collectives: collectives, Min: int64(least), Max: int64(most), Factor: int64(factor),
				DType: plugin.Float32, Op: plugin.OpSum, Budget: budget}
			for _, config.World = range worlds {
				if err := config.Check(); err != nil {
					return err
				}
			}
			ctx, stop := interruptible(c.Context())
			defer stop()
			contenders := []bench.Contender{shuntContender(c, reference)}
			for i, name := range against {
				contender := shuntContender(c, name)
				if name == openMPI {
					mpi, done, err := mpiContender(ctx)
					if err != nil {
						return err
					}
					defer done()
					contender = mpi
				}
				contender.Name = newName(name, contenders)
				against[i], contenders = contender.Name, append(contenders, contender)
			}
			line := newProgress(c)
			list, err := bench.Contend(ctx, contenders, worlds, collectives, config, rounds,
				func(world int, collective, contender string, round int) {
					line.show("%d ranks, %s, %s, round %d of %d", world, collective, contender, round+1, rounds)
				})
			line.clear()
			if err != nil {
				return err
			}
			return reportPeers(c, list, reference, against, write, atLeast)
		},
	}
	f := c.Flags()
	f.IntSliceVarP(&worlds, "ranks", "n", worlds, "numbers of ranks")
	f.StringSliceVar(&collectives, "collective", collectives, "what to measure")
	f.Var(&least, "min", "smallest size")
	f.Var(&most, "max", "largest size")
	f.IntVar(&factor, "factor", factor, "factor from one size to the next")
	f.IntVar(&rounds, "rounds", rounds, "rounds of all contenders")
	f.DurationVar(&budget, "budget", budget, "time spent on timing each row")
	f.StringVar(&reference, "transport", reference, "transport to compare")
	f.StringSliceVar(&against, "against", against, "what to compare it with: openmpi, or transports")
	f.Var((*outputFile)(&write), "write", "write the results to this JSON file too, as bench/data has them")
	f.Float64Var(&atLeast, "require", 0, "exit with status 1 when a ratio is below this")
	return c
}

// newName returns a contender's name, with a number where another one is called so: what is compared with itself shows
// how much noise there is.
func newName(name string, contenders []bench.Contender) string {
	text := name
	for i := 2; slices.ContainsFunc(contenders, func(c bench.Contender) bool { return c.Name == text }); i++ {
		text = fmt.Sprintf("%s (%d)", name, i)
	}
	return text
}

// shuntContender measures Shunt over one transport.
func shuntContender(c *cobra.Command, transport string) bench.Contender {
	return bench.Contender{Name: transport, Measure: func(ctx context.Context, config bench.Config) (map[int64]float64,
		error) {
		self, err := itself()
		if err != nil {
			return nil, err
		}
		config.Transport = transport
		// MPI_Bcast has one buffer.
		config.InPlaceOnly = config.Collectives[0] == plugin.Broadcast.String()
		received, stop := signals(ctx)
		defer stop()
		times, wrong := map[int64]float64{}, int64(0)
		err = bench.Run(ctx, config, bench.Launch{
			Job: launch.Job{Path: self, Bind: true, Label: "shunt bench-peers", Stdout: c.ErrOrStderr(),
				Stderr: c.ErrOrStderr(), Prefix: true},
			Signals: received,
			Args:    func(text string) []string { return []string{"rank", "bench", text} },
		}, func(r bench.Row) {
			timing := r.OutOfPlace
			if config.InPlaceOnly {
				timing = r.InPlace
			}
			if timing == nil {
				return
			}
			times[r.Bytes] = timing.Microseconds
			wrong += r.Wrong()
		})
		if err == nil && wrong > 0 {
			err = &exitError{exitWrong, fmt.Errorf("%s: %d elements are wrong", transport, wrong)}
		}
		return times, err
	}}
}

// mpiContender compiles the Open MPI program. The function removes it.
func mpiContender(ctx context.Context) (bench.Contender, func(), error) {
	for _, tool := range []string{"mpicc", "mpirun"} {
		if _, err := exec.LookPath(tool); err != nil {
			return bench.Contender{}, nil, plugin.Errorf(plugin.Unsupported,
				"Open MPI is not installed (no %s); on Debian: apt-get install openmpi-bin libopenmpi-dev", tool)
		}
	}
	dir, err := outfile.MkdirTemp("shunt-peers-")
	if err != nil {
		return bench.Contender{}, nil, plugin.Errorf(plugin.System, "%w", err)
	}
	done := func() { _ = os.RemoveAll(dir) }
	program := filepath.Join(dir, "mpi")
	compiler := exec.CommandContext(ctx, "mpicc", "-O3", "-x", "c", "-o", program, "-")
	compiler.Stdin = bytes.NewReader(peers.OpenMPI)
	if said, err := compiler.CombinedOutput(); err != nil {
		done()
		return bench.Contender{}, nil, plugin.Errorf(plugin.System, "mpicc: %w\n%s", err, said)
	}
	return bench.Contender{Name: openMPI, Measure: func(ctx context.Context, config bench.Config) (map[int64]float64,
		error) {
		// The path that is fastest between processes of one machine: shared memory
		// with single copies by cross-memory attach.
		// Ranks are bound as those of shunt bench are.
		binding := []string{"--bind-to", "none"}
		switch cpus, cores := launch.CPUs(); {
		case config.World <= cores:
			binding = []string{"--map-by", "core", "--bind-to", "core"}
		case config.World <= cpus:
			binding = []string{"--use-hwthread-cpus", "--map-by", "hwthread", "--bind-to", "hwthread"}
		}
		args := append(binding, "--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "self,vader",
			"-n", strconv.Itoa(config.World), program, config.Collectives[0],
			strconv.FormatInt(config.Min, 10), strconv.FormatInt(config.Max, 10), strconv.FormatInt(config.Factor, 10),
			strconv.FormatInt(config.Budget.Microseconds(), 10))
		if os.Getuid() == 0 {
			args = append([]string{"--allow-run-as-root"}, args...)
		}
		var said tail
		mpi := exec.CommandContext(ctx, "mpirun", args...)
		mpi.Stderr = &said
		mpi.Cancel = func() error { return mpi.Process.Signal(syscall.SIGTERM) } // it ends its ranks
		mpi.WaitDelay = 10 * time.Second
		output, err := mpi.Output()
		if err != nil {
			return nil, plugin.Errorf(plugin.System, "mpirun: %w\n%s", err, said.text())
		}
		return parseMPI(output)
	}}, done, nil
}

// parseMPI reads the lines of bench/peers/openmpi/mpi.c.
func parseMPI(output []byte) (map[int64]float64, error) {
	times := map[int64]float64{}
	for line := range strings.Lines(string(output)) {
		var name string
		var size, iterations, wrong int64
		var us float64
		if _, err := fmt.Sscanf(line, "%s %d %d %f %d", &name, &size, &iterations, &us, &wrong); err != nil {
			return nil, plugin.Errorf(plugin.Protocol, "mpirun printed %.200q: %w", line, err)
		}
		if wrong != 0 {
			return nil, plugin.Errorf(plugin.Internal, "Open MPI: %d elements of %s are wrong at %d bytes", wrong, name, size)
		}
		times[size] = us
	}
	return times, nil
}

// reportPeers prints the comparison and writes it where it is wanted.
func reportPeers(c *cobra.Command, list []bench.Comparison, reference string, against []string, path string,
	atLeast float64) error {
	results := peertable.Results{Machine: cpuModel(), CPUs: runtime.NumCPU(), Reference: reference, Against: against}
	slower := 0
	for _, row := range list {
		ratios := map[string]float64{}
		for _, other := range against {
			ratio := row.Ratio(other, reference)
			if atLeast > 0 && !(ratio >= atLeast) { // of one that was not measured it is NaN
				slower++
			}
			if !math.IsNaN(ratio) {
				ratios[other] = ratio
			}
		}
		results.Rows = append(results.Rows, peertable.Row{World: row.World, Collective: row.Collective, Bytes: row.Bytes,
			Microseconds: row.Microseconds, Ratio: ratios})
	}
	if wantsJSON(c) {
		if err := printJSON(c, list); err != nil {
			return err
		}
	} else {
		results.Tables(c.OutOrStdout())
	}
	if path != "" {
		if err := results.Write(path); err != nil {
			return plugin.Errorf(plugin.System, "%w", err)
		}
	}
	if slower > 0 {
		return &exitError{exitWrong, fmt.Errorf("%d ratios are below %g or were not measured", slower, atLeast)}
	}
	return nil
}

// cpuModel returns the kernel's name of the processor.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return "an unnamed " + runtime.GOARCH + " processor"
}
