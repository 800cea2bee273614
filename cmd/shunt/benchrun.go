package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/bench"
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/internal/outfile"
	"github.com/shunt-ccl/shunt/plugin"
)

// benchResult is one world of bench --json.
type benchResult struct {
	World    int            `json:"world"`
	Seconds  float64        `json:"seconds"`
	Wrong    int64          `json:"wrong"`
	Config   bench.Config   `json:"config"`
	Rows     []bench.Row    `json:"rows"`
	Failures []benchFailure `json:"failures,omitempty"`
}

// benchFailure is a collective that ended with an error, behind the rows that it
// gave.
type benchFailure struct {
	Collective string `json:"collective"`
	Error      string `json:"error"`
}

// benchRun is a run of shunt bench.
type benchRun struct {
	command *cobra.Command
	job     launch.Job
	apart   bool // every collective in processes of its own
	limit   time.Duration
	save    string
	under   string // what rank 0 runs under, as a shell reads it

	results []benchResult
	failed  error
	began   time.Time // of the world that is measured
	lost    error     // why results get nowhere, which ends the run
}

// world measures one world and prints it, unless JSON is wanted. The error is
// one that ends the run; what a collective apart fails with does not.
func (r *benchRun) world(config bench.Config) error {
	table := bench.Table{To: r.command.OutOrStdout(), Config: config, Bound: binds(r.job, config.World)}
	r.results = append(r.results, benchResult{World: config.World, Config: config, Rows: []bench.Row{}})
	result := &r.results[len(r.results)-1]
	parts := []bench.Config{config}
	if r.apart {
		parts = config.Apart()
	}
	var estimate time.Duration
	for i := range parts {
		estimate += parts[i].Estimate()
	}
	if estimate > 0 {
		fmt.Fprintf(r.command.ErrOrStderr(), "shunt bench: %d ranks, about %s\n", config.World, estimate)
	}
	ctx, stop := interruptible(r.command.Context())
	defer stop()
	r.began = time.Now()
	for _, part := range parts {
		err := r.part(ctx, part, &table, result)
		result.Seconds = time.Since(r.began).Seconds()
		switch {
		case r.lost != nil:
			return r.lost
		case err != nil && (!r.apart || ctx.Err() != nil):
			if len(r.results[0].Rows)+len(r.results[0].Failures) == 0 {
				return err // an older file stays
			}
			return errors.Join(err, r.keep(true))
		case err != nil:
			name := part.Collectives[0]
			result.Failures = append(result.Failures, benchFailure{name, fmt.Sprintf("%.4000s", err)})
			r.failed = errors.Join(r.failed, fmt.Errorf("%s, %d ranks: %w", name, config.World, err))
			if !wantsJSON(r.command) {
				table.Failed(name, err)
			}
		}
		if err := r.keep(false); err != nil {
			return err
		}
	}
	if !wantsJSON(r.command) {
		table.End()
		if estimate > 0 {
			fmt.Fprintf(r.command.OutOrStdout(), "# took %.0f s\n", result.Seconds)
		}
	}
	return nil
}

// part runs the ranks once. What ends them is the signal that interrupts, not the end of interrupted.
func (r *benchRun) part(interrupted context.Context, config bench.Config, table *bench.Table,
	result *benchResult) error {
	self, err := itself()
	if err != nil {
		return err
	}
	ctx := r.command.Context()
	if r.apart {
		limit := r.limit
		if limit == 0 {
			limit = max(time.Minute, 5*config.Estimate())
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, plugin.Errorf(plugin.Timeout, "not done after %s", limit))
		defer cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	job := r.job
	job.Path, job.Label = self, "shunt bench"
	job.Stdout, job.Stderr, job.Prefix = r.command.ErrOrStderr(), r.command.ErrOrStderr(), true
	received, stop := signals(interrupted)
	defer stop()
	line := newProgress(r.command)
	args := func(text string) []string { return []string{"rank", "bench", text} }
	if r.under != "" {
		job.Path = "/bin/sh"
		args = func(text string) []string {
			return []string{"-c", `if [ "$SHUNT_RANK" = 0 ]; then exec ` + r.under + ` "$@"; fi; exec "$@"`, "sh", self, "rank",
				"bench", text}
		}
	}
	err = bench.Run(ctx, config, bench.Launch{Job: job, Signals: received, Args: args}, func(row bench.Row) {
		if n := len(result.Rows); n > 0 && result.Rows[n-1].Collective != row.Collective {
			r.lost = cmp.Or(r.lost, r.keep(false))
		}
		result.Rows, result.Seconds = append(result.Rows, row), time.Since(r.began).Seconds()
		result.Wrong += row.Wrong()
		if wantsJSON(r.command) {
			line.show("%d ranks: %s, %d bytes", config.World, row.Collective, row.Bytes)
		} else {
			table.Row(row)
		}
		if r.lost = cmp.Or(r.lost, unwritten(r.command)); r.lost != nil {
			cancel()
		}
	})
	line.clear()
	if cause := context.Cause(ctx); err != nil && cause != nil && r.command.Context().Err() == nil {
		return errors.Join(cause, err)
	}
	return err
}

// keep writes what there is so far where it is wanted; into what is no file, such as a pipe, only what is final.
func (r *benchRun) keep(final bool) error {
	if info, err := os.Stat(r.save); r.save == "" || (!final && err == nil && !info.Mode().IsRegular()) {
		return nil
	}
	text, err := json.MarshalIndent(r.results, "", " ")
	if err == nil {
		err = outfile.Write(r.save, append(text, '\n'))
	}
	if err != nil {
		return plugin.Errorf(plugin.System, "saving results: %w", err)
	}
	return nil
}

// end prints JSON where it is wanted, and says what failed.
func (r *benchRun) end() error {
	if err := r.keep(true); err != nil {
		return err
	}
	if wantsJSON(r.command) {
		if err := printJSON(r.command, r.results); err != nil {
			return err
		}
	}
	if r.failed != nil {
		return r.failed
	}
	measured := false
	for _, result := range r.results {
		if result.Wrong > 0 {
			return &exitError{code: exitWrong}
		}
		measured = measured || slices.ContainsFunc(result.Rows, func(row bench.Row) bool { return row.Skipped == "" })
	}
	if !measured {
		return &exitError{code: exitWrong, err: errors.New("nothing was measured: no transport serves it")}
	}
	return nil
}
