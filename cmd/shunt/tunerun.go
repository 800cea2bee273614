package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/bench"
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/internal/outfile"
	"github.com/shunt-ccl/shunt/plugin"
)

// tuneResult is one world of tune --json.
type tuneResult struct {
	World   int           `json:"world"`
	Seconds float64       `json:"seconds"`
	Config  bench.Config  `json:"config"`
	Rows    []bench.Tuned `json:"rows"`
	Single  []string      `json:"single,omitempty"` // collectives with nothing to choose
	// Unmeasured are algorithms that take none of the sizes, by collective.
	Unmeasured map[string][]string `json:"unmeasured,omitempty"`
	Changes    []bench.Change      `json:"changes,omitempty"`
	Misses     []string            `json:"misses,omitempty"` // sizes for which the best is not taken in spite of the file
	Failures   []benchFailure      `json:"failures,omitempty"`
	// Regrets are with --regret, in place of rows.
	Regrets []bench.Regret `json:"regrets,omitempty"`
}

func (r *tuneResult) String() string {
	text := fmt.Sprintf("%d ranks", r.World)
	if len(r.Config.Modes) > 0 {
		text += ", " + string(r.Config.Modes[0])
	}
	return text
}

// tuneReport is tune --json.
type tuneReport struct {
	File   string          `json:"file,omitempty"` // that was written
	Tuning selector.Tuning `json:"tuning"`
	Worlds []*tuneResult   `json:"worlds"`
}

// tuneRun is a run of shunt tune.
type tuneRun struct {
	command *cobra.Command
	job     launch.Job
	limit   time.Duration
	output  string
	only    bench.Only // for what the file holds alone
	tuning  selector.Tuning
	results []*tuneResult
	failed  error
	wrong   int // algorithms and sizes with wrong results
}

// all measures the worlds, in each mode, writes the file and asks what it changes.
func (r *tuneRun) all(config bench.Config, worlds []int, modes []bench.Mode) error {
	ctx, stop := interruptible(r.command.Context())
	defer stop()
	// Before anything is measured: it would be a pity to find out afterwards.
	path, err := filepath.Abs(r.output)
	if err != nil {
		return plugin.Errorf(plugin.System, "%w", err)
	}
	if err := outfile.Check(path); err != nil && !config.Regret {
		return usage("-o %s: the file cannot be written: %w", r.output, err)
	}
	if !config.Regret {
		r.sayWhatGoes(path, worlds, config.Memory.String())
	}
	for _, world := range worlds {
		for _, mode := range modes {
			config.World, config.Modes = world, nil
			if mode != "" {
				config.Modes = []bench.Mode{mode}
			}
			result := &tuneResult{World: world, Config: config, Rows: []bench.Tuned{}, Unmeasured: map[string][]string{}}
			r.results = append(r.results, result)
			if err := r.measure(ctx, result); err != nil {
				return r.stopped(&config, err)
			}
			r.tuning.Entries = append(r.tuning.Entries, bench.Entries(&config, result.Rows, r.only)...)
		}
	}
	if config.Regret {
		return r.regrets()
	}
	report := tuneReport{Tuning: r.tuning, Worlds: r.results}
	switch {
	case r.wrong > 0:
		r.failed = errors.Join(r.failed, fmt.Errorf("wrong results of %d algorithms and sizes: no file is written", r.wrong))
	case len(r.tuning.Entries) == 0:
		r.failed = errors.Join(r.failed, errors.New("nothing was measured that there is a choice of: no file is written"))
	default:
		if err := r.tuning.WriteFile(path); err != nil {
			return stopped(r.command, err, report)
		}
		report.File, report.Tuning = path, r.tuning
		if err := r.proveAll(ctx); err != nil {
			return stopped(r.command, fmt.Errorf("ranks with the file %s: %w", path, err), report)
		}
	}
	if wantsJSON(r.command) {
		if err := printJSON(r.command, report); err != nil {
			return err
		}
	} else if report.File != "" {
		r.print(path)
	}
	if r.failed != nil {
		return &exitError{code: exitWrong, err: r.failed}
	}
	return nil
}

// sayWhatGoes warns of what an older file has for other worlds or memory, which the new one will not have.
func (r *tuneRun) sayWhatGoes(path string, worlds []int, memory string) {
	old, err := selector.ReadTuning(path)
	if err != nil {
		return // there is none
	}
	curves, others := 0, map[string]bool{}
	for _, e := range old.Entries {
		if !slices.Contains(worlds, e.World) || e.Memory != memory {
			curves++
			others[fmt.Sprintf("%d ranks (%s)", e.World, cmp.Or(e.Memory, "any memory"))] = true
		}
	}
	if curves > 0 {
		fmt.Fprintf(r.command.ErrOrStderr(), "shunt tune: warning: %s will be replaced, which has %d curves of %s; "+
			"-o names another file, and -n takes several numbers of ranks\n", r.output, curves,
			strings.Join(slices.Sorted(maps.Keys(others)), ", "))
	}
}

// regrets says where what is chosen is not the best.
func (r *tuneRun) regrets() error {
	if wantsJSON(r.command) {
		if err := printJSON(r.command, r.results); err != nil {
			return err
		}
	} else {
		r.printRegrets()
	}
	if r.wrong > 0 {
		r.failed = errors.Join(r.failed, fmt.Errorf("%d algorithms and sizes gave wrong results", r.wrong))
	}
	if r.failed != nil {
		return &exitError{code: exitWrong, err: r.failed}
	}
	return nil
}

func (r *tuneRun) printRegrets() {
	for _, result := range r.results {
		w := r.command.OutOrStdout()
		fmt.Fprintf(w, "# regret: %s, %s memory, %s %s\n", result, result.Config.Memory, result.Config.DType,
			result.Config.Op)
		bench.RegretTable(w, result.Regrets)
		fmt.Fprintf(w, "# took %.0f s\n", result.Seconds)
	}
}

// measure goes through the collectives of one world, each in processes of its
// own, so that one that fails costs its own rows only.
func (r *tuneRun) measure(ctx context.Context, result *tuneResult) error {
	config, began := result.Config, time.Now()
	defer func() { result.Seconds = time.Since(began).Seconds() }()
	file := ""
	if config.Regret {
		file = os.Getenv("SHUNT_TUNING_FILE")
	}
	choices, err := r.ask(ctx, config, file)
	if err != nil {
		return err
	}
	var parts []bench.Config
	estimate := time.Duration(0)
	for _, part := range config.Apart() {
		name := part.Collectives[0]
		if count := bench.Algorithms(choices, name); count < 2 && (count == 0 || len(config.Against) == 0) {
			result.Single = append(result.Single, name)
			continue
		}
		if names := bench.Unmeasured(choices, name); len(names) > 0 {
			result.Unmeasured[name] = names
		}
		parts = append(parts, part)
		estimate += part.EstimateTune(of(choices, name))
	}
	fmt.Fprintf(r.command.ErrOrStderr(), "shunt tune: %s, %d collectives, about %s\n", result, len(parts),
		max(estimate, time.Second))
	if !wantsJSON(r.command) && len(result.Single) > 0 {
		fmt.Fprintf(r.command.OutOrStdout(), "# %d ranks: nothing to choose for %s\n\n", config.World,
			strings.Join(result.Single, ", "))
	}
	if !wantsJSON(r.command) && !config.Regret && binds(r.job, config.World) {
		fmt.Fprintf(r.command.OutOrStdout(), "%s\n\n", bench.Bound)
	}
	for _, part := range parts {
		name := part.Collectives[0]
		rows, err := r.part(ctx, part, of(choices, name), file)
		var tuned []bench.Tuned
		if config.Regret {
			result.Regrets = append(result.Regrets, bench.Regrets(rows, of(choices, name))...)
			r.wrong += bench.WrongOf(rows)
		} else {
			tuned = bench.NewTuned(rows, of(choices, name))
		}
		if err != nil {
			if ctx.Err() != nil {
				what := "interrupted: no file is written"
				if config.Regret {
					what = "interrupted: the table ends with what was measured before"
				}
				return plugin.Errorf(plugin.Aborted, "%s: %w", what, err)
			}
			result.Failures = append(result.Failures, benchFailure{name, fmt.Sprintf("%.4000s", err)})
			r.failed = errors.Join(r.failed, fmt.Errorf("%s, %d ranks: %w", name, config.World, err))
		}
		for _, t := range tuned {
			r.wrong += len(t.Wrong)
		}
		result.Rows = append(result.Rows, tuned...)
		if !wantsJSON(r.command) {
			bench.TuneTable(r.command.OutOrStdout(), &part, tuned)
			if names := result.Unmeasured[name]; len(names) > 0 && !config.Regret {
				fmt.Fprintf(r.command.OutOrStdout(), "# %s: none of these sizes suits %s; estimates of these stay (a smaller --factor helps)\n\n", name, strings.Join(names, ", "))
			}
			if err != nil {
				fmt.Fprintf(r.command.OutOrStdout(), "# %s FAILED\n\n", name)
			}
		}
	}
	return nil
}

// of returns the choices for one collective.
func of(choices []bench.Choice, collective string) []bench.Choice {
	return slices.DeleteFunc(slices.Clone(choices), func(a bench.Choice) bool { return a.Collective != collective })
}

// part runs the ranks of one collective.
func (r *tuneRun) part(ctx context.Context, config bench.Config, choices []bench.Choice, file string) ([]bench.Row,
	error) {
	self, err := itself()
	if err != nil {
		return nil, err
	}
	limit := r.limit
	if limit == 0 {
		limit = max(time.Minute, 5*config.EstimateTune(choices))
	}
	timed, cancel := context.WithTimeoutCause(ctx, limit, plugin.Errorf(plugin.Timeout, "not done after %s", limit))
	defer cancel()
	job := r.job
	job.Path, job.Label, job.Env = self, "shunt tune", tuneEnv(&config, file)
	job.Stdout, job.Stderr, job.Prefix = r.command.ErrOrStderr(), r.command.ErrOrStderr(), true
	received, stop := signals(ctx)
	defer stop()
	line := newProgress(r.command)
	var rows []bench.Row
	args := func(text string) []string { return []string{"rank", "bench", text} }
	line.show("%d ranks: %s", config.World, config.Collectives[0])
	err = bench.Run(timed, config, bench.Launch{Job: job, Signals: received, Args: args}, func(row bench.Row) {
		rows = append(rows, row)
		line.show("%d ranks: %s, %s", config.World, row.Collective, selector.FormatSize(row.Bytes))
	})
	line.clear()
	if cause := context.Cause(timed); err != nil && cause != nil && ctx.Err() == nil {
		err = errors.Join(cause, err)
	}
	return rows, err
}

// tuneEnv returns what decides the choice of ranks, with a tuning file or without.
func tuneEnv(config *bench.Config, file string) []string {
	mode := ""
	if len(config.Modes) > 0 {
		mode = string(config.Modes[0])
	}
	return []string{"SHUNT_ALGO=", "SHUNT_TUNING_FILE=" + file, "SHUNT_TUNING_MODE=" + mode}
}

// ask lets real ranks say what they would take, with a tuning file or without.
func (r *tuneRun) ask(ctx context.Context, config bench.Config, file string) ([]bench.Choice, error) {
	job := r.job
	job.World, job.Label, job.Env = config.World, "shunt tune", tuneEnv(&config, file)
	var choices []bench.Choice
	return choices, askRanks(ctx, "tune", config, job, &choices, r.command.ErrOrStderr())
}

func (r *tuneRun) stopped(config *bench.Config, err error) error {
	if config.Regret {
		if !wantsJSON(r.command) {
			r.printRegrets()
		}
		return stopped(r.command, err, r.results)
	}
	return stopped(r.command, err, tuneReport{Tuning: r.tuning, Worlds: r.results})
}

// proveAll notes what ranks take that have the file: a copy, as a FIFO and standard output are not read back.
func (r *tuneRun) proveAll(ctx context.Context) error {
	dir, err := outfile.MkdirTemp("shunt-tune-*")
	if err != nil {
		return plugin.Errorf(plugin.System, "%w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a leftover in the temporary directory does no harm
	path := filepath.Join(dir, "tuning.json")
	if err := r.tuning.WriteFile(path); err != nil {
		return err
	}
	for _, result := range r.results {
		if err := r.prove(ctx, result, path); err != nil {
			return err
		}
	}
	return nil
}

// prove notes what ranks take that have the file.
func (r *tuneRun) prove(ctx context.Context, result *tuneResult, path string) error {
	choices, err := r.ask(ctx, result.Config, path)
	if err != nil {
		return err
	}
	for i := range result.Rows {
		result.Rows[i].Ask(choices)
	}
	result.Changes, result.Misses = bench.Changes(result.Rows), bench.Misses(result.Rows)
	return nil
}

// print says what the file changes, and how it is used.
func (r *tuneRun) print(path string) {
	w := r.command.OutOrStdout()
	for _, result := range r.results {
		fmt.Fprintf(w, "# %s, with the file (messages of one rank):\n", result)
		little := 0
		for _, change := range result.Changes {
			if math.Abs(change.Most) <= bench.Noise && math.Abs(change.Least) <= bench.Noise {
				little++
				continue
			}
			fmt.Fprintf(w, "  %s\n", change)
		}
		if little > 0 || len(result.Changes) == 0 {
			fmt.Fprintf(w, "  %d changes that make no difference beyond noise (%.0f %%)\n", little, 100*bench.Noise)
		}
		if len(result.Misses) > 0 {
			fmt.Fprintf(w, "# not the best in spite of it, by more than %.0f %%:\n", 100*bench.Noise)
			for _, miss := range result.Misses {
				fmt.Fprintf(w, "  %s\n", miss)
			}
		}
		fmt.Fprintf(w, "# took %.0f s\n", result.Seconds)
	}
	fmt.Fprintf(w, "# %s: %d curves; rank 0's file counts for all ranks\n", r.output, len(r.tuning.Entries))
	fmt.Fprintf(w, "export SHUNT_TUNING_FILE=%s\n", shellQuoted(path))
}

// shellQuoted returns a word as a shell reads it.
func shellQuoted(word string) string {
	if strings.IndexFunc(word, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/._-+:,@%", r)
	}) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// tuneComment says where, when and how the file was measured.
func tuneComment(c *cobra.Command, kind plugin.MemoryKind) string {
	words := []string{"shunt tune"}
	c.Flags().Visit(func(f *pflag.Flag) { words = append(words, "--"+f.Name+"="+strings.Trim(f.Value.String(), "[]")) })
	where := "an unnamed host"
	if name, err := os.Hostname(); err == nil {
		where = name
	}
	text := fmt.Sprintf("%s, version %s, %s; %s, %s, %d CPUs", strings.Join(words, " "), readVersion().Version,
		time.Now().UTC().Format(time.RFC3339), where, cpuModel(), runtime.NumCPU())
	if kind != plugin.MemoryKindCuda {
		return text
	}
	list, cudaVersion, err := machineGPUs()
	if err == nil {
		text += fmt.Sprintf("; %d x %s", len(list), list[0].Name)
	}
	text += fmt.Sprintf(", CUDA %d.%d", cudaVersion/1000, cudaVersion%1000/10)
	// What NVIDIA's kernel module says of itself; its first line ends with the version.
	if driver, err := os.ReadFile("/proc/driver/nvidia/version"); err == nil {
		first, _, _ := strings.Cut(string(driver), "\n")
		text += ", driver: " + strings.Join(strings.Fields(strings.TrimPrefix(first, "NVRM version:")), " ")
	}
	return text
}
