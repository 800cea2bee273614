package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/internal/outfile"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/conformance"
)

// conformanceFlags is the command conformance, and its flags.
type conformanceFlags struct {
	config          conformance.Config
	memory, filter  string
	modes           []string
	junit, jsonPath string
	verbose         bool
	stopAfter       time.Duration
}

func newConformance() *cobra.Command {
	var s conformanceFlags
	c := &cobra.Command{
		Use:   "conformance",
		Short: "Prove a transport: every collective, dtype, op, size, place and root",
		Long: `Prove a transport: every collective, dtype, op, size, place and root.

Runs the conformance suite over one transport, forced, in worlds of real
processes. Inputs are predictable and every byte of every buffer is checked. A
skip names the capability that is absent; a run that only skipped fails. Exit
status 1 when a case failed.

With --memory cuda every rank has a GPU of its own, unless SHUNT_SHARE_GPU=on lets
ranks take turns on those that there are (milliseconds a call). Results are copied
back and checked in stream order. Operations run eagerly, from captured graphs,
and from both by turns; --mode chooses. With --symmetric receive memory is registered as
symmetric, and the collectives run that have algorithms of their own for it.`,
		Example: "  shunt conformance --short\n  shunt conformance --transport process:./my-transport -n 2,4 --filter all_to_all --junit report.xml\n  shunt conformance --transport process:./my-engine -n 3,4 --hosts 1,2,3\n  shunt conformance --memory cuda --mode graph,mixed -n 2,4",
		Args:    flagsOnly,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(c); err != nil {
				return err
			}
			return s.start(c)
		},
	}
	s.flags(c)
	return c
}

func (s *conformanceFlags) flags(c *cobra.Command) {
	f, config := c.Flags(), &s.config
	f.IntSliceVarP(&config.Worlds, "ranks", "n", nil,
		fmt.Sprintf("numbers of ranks (default %v)", conformance.DefaultWorlds()))
	f.IntSliceVar(&config.Hosts, "hosts", nil, "numbers of hosts that the ranks of each world pretend to run on, in turn; worlds of fewer ranks are left out (default [1])")
	f.StringVar(&config.Transport, "transport", "builtin:shm",
		"builtin:NAME, shared:PATH or process:PATH; with --memory cuda the default is builtin:cudaipc")
	f.StringVar(&s.memory, "memory", plugin.MemoryKindHost.String(), "where buffers are: host or cuda")
	f.StringSliceVar(&s.modes, "mode", nil, fmt.Sprintf("with --memory cuda: how operations come to run, of %v (default all)", conformance.Modes()))
	f.BoolVar(&config.Symmetric, "symmetric", false, "with --memory cuda: register receive memory as symmetric, and run what has algorithms of its own for it")
	f.StringVar(&s.filter, "filter", "", "run only the cases whose name matches this regular expression")
	f.BoolVar(&config.Short, "short", false, "run a smaller set of cases that covers the same properties")
	f.BoolVarP(&s.verbose, "verbose", "v", false, "print every case")
	f.Uint64Var(&config.Seed, "seed", 0, "seed of the data, roots, splits and delays")
	f.IntVar(&config.MaxFailures, "max-failures", 0, "stop after this many failed cases; 0: never")
	f.DurationVar(&config.Timeout, "timeout", 30*time.Second, "deadline of one case")
	f.DurationVar(&s.stopAfter, "stop-after", 0, "start no case after this time, and report those until then; 0: run all")
	f.Var((*outputFile)(&s.junit), "junit", "write the report as JUnit XML to this file")
	f.Var((*outputFile)(&s.jsonPath), "json-file", "write the report as JSON to this file")
}

// check rejects flags that do not go together, and completes what they say is to be run.
func (s *conformanceFlags) check(c *cobra.Command) error {
	config := &s.config
	at := slices.IndexFunc(plugin.MemoryKinds(), func(k plugin.MemoryKind) bool { return k.String() == s.memory })
	if at < 0 {
		return usage("--memory: %q is none of %v", s.memory, plugin.MemoryKinds())
	}
	config.Memory = plugin.MemoryKinds()[at]
	onGPUs := config.Memory == plugin.MemoryKindCuda
	if config.Symmetric && !onGPUs {
		return usage("--symmetric: symmetric memory is that of GPUs, --memory cuda")
	}
	if len(s.modes) > 0 && !onGPUs {
		return usage("--mode is for --memory cuda, and memory is %s", config.Memory)
	}
	for _, world := range config.Worlds {
		if err := checkWorld(world, 1); err != nil {
			return err
		}
	}
	if config.Timeout <= 0 || s.stopAfter < 0 || config.MaxFailures < 0 {
		return usage("--timeout %v, --stop-after %v, --max-failures %d: want more than 0, 0 or more, and 0 or more",
			config.Timeout, s.stopAfter, config.MaxFailures)
	}
	for _, n := range config.Hosts {
		if n < 1 || n > plugin.MaxWorld {
			return usage("--hosts %d: want 1 to %d", n, plugin.MaxWorld)
		}
	}
	for _, mode := range s.modes {
		if !slices.Contains(conformance.Modes(), conformance.Mode(mode)) {
			return usage("--mode: %q is none of %v", mode, conformance.Modes())
		}
		config.Modes = append(config.Modes, conformance.Mode(mode))
	}
	if !c.Flags().Changed("transport") && onGPUs {
		config.Transport = "builtin:cudaipc"
	}
	if err := areThere("transport", splitList(config.Transport)...); err != nil {
		return err
	}
	if s.filter == "" {
		return nil
	}
	var err error
	if config.Filter, err = regexp.Compile(s.filter); err != nil {
		return usage("--filter: %v", err)
	}
	return nil
}

// start runs the suite and reports it.
func (s *conformanceFlags) start(c *cobra.Command) error {
	ctx, stop := signal.NotifyContext(c.Context(), ending()...)
	defer stop()
	if s.stopAfter > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.stopAfter, errStopped)
		defer cancel()
	}
	line := newProgress(c)
	failed := 0
	s.config.Progress = func(r *conformance.CaseResult, done, total int) {
		if r.Outcome == conformance.Failed {
			failed++
		}
		if s.verbose && !wantsJSON(c) {
			line.clear()
			fmt.Fprintf(c.OutOrStdout(), "%-7s %10s %s\n", r.Outcome, r.Time.Round(time.Microsecond), r.Name)
		}
		line.show("%s: %d of %d cases of this world, %d failed; %s", s.config.Transport, done, total, failed, r.Name)
	}
	report, err := conformance.Run(ctx, s.config)
	line.clear()
	if report != nil && errors.Is(err, errStopped) {
		fmt.Fprintf(c.ErrOrStderr(), "shunt conformance: stopped after %s; what follows is of the cases until then\n",
			s.stopAfter)
		err = nil
	}
	if err != nil && report != nil {
		return stopped(c, err, report)
	}
	if err != nil {
		return err
	}
	return finishConformance(c, report, s.junit, s.jsonPath)
}

// errStopped ends a run that --stop-after limits.
var errStopped = errors.New("stopped as asked")

// finishConformance writes the report in every form that was asked for.
func finishConformance(c *cobra.Command, report *conformance.Report, junit, jsonPath string) error {
	write := func(path string, to func(io.Writer) error) error {
		if path == "" {
			return nil
		}
		var text bytes.Buffer
		err := to(&text)
		if err == nil {
			err = outfile.Write(path, text.Bytes())
		}
		if err != nil {
			return &exitError{exitFailure, plugin.Errorf(plugin.System, "report: %w", err)}
		}
		return nil
	}
	unkept := cmp.Or(write(junit, report.WriteJUnit), write(jsonPath, report.WriteJSON))
	show := report.WriteText
	if wantsJSON(c) {
		show = report.WriteJSON
	}
	if err := cmp.Or(show(c.OutOrStdout()), unkept); err != nil {
		return err
	}
	if report.Err() != nil {
		return &exitError{exitWrong, report.Err()}
	}
	return nil
}
