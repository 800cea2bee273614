package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/records"
)

func newRun() *cobra.Command {
	var world, hosts int
	var prefix, forwardInput, bind bool
	var grace time.Duration
	var transports, algo, recordsDir string
	var env []string
	c := &cobra.Command{
		Use:   "run [flags] [--] PROGRAM [ARGUMENT...]",
		Short: "Run a program as the ranks of a job on this machine",
		Long: `Run a program as the ranks of a job on this machine.

Every rank gets SHUNT_RANK, SHUNT_WORLD and SHUNT_ID, by which it finds the
others, and LOCAL_RANK and LOCAL_WORLD_SIZE. Signals are passed on, and a second SIGINT or SIGTERM ends the job. When
a rank fails, the others have --grace to report it themselves and are then
ended; no process of the job outlives it.

With --records DIR, ranks whose communicator fails write there what they ran last,
and when the job has failed you see it in a few lines: who was in which call, who
was behind, and of whom there is no file. See shunt records.

Exit status: that of the first rank to fail, 128 plus the number of the signal
that ended it, or 2 or 3 when the job could not be started.`,
		Example: "  shunt run -n 4 --prefix --records records -- python3 train.py --epochs 3",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkWorld(world, hosts); err != nil {
				return err
			}
			if grace < 0 {
				return usage("--grace %v is negative", grace)
			}
			for _, entry := range env {
				if strings.Index(entry, "=") < 1 {
					return usage("--env %q; want NAME=VALUE", entry)
				}
			}
			j := launch.Job{
				World: world, Hosts: hosts, Bind: bind, Path: args[0], Args: args[1:], Env: env, Label: "shunt run",
				Stdout: c.OutOrStdout(), Stderr: c.ErrOrStderr(), Prefix: prefix, Grace: max(grace, 1),
			}
			if transports != "" {
				j.Env = append(j.Env, "SHUNT_TRANSPORTS="+transports)
			}
			if algo != "" {
				j.Env = append(j.Env, "SHUNT_ALGO="+algo)
			}
			var left *records.Dir
			if recordsDir != "" {
				var err error
				if left, err = records.Make(recordsDir); err != nil {
					return classify(err)
				}
				j.Env = append(j.Env, "SHUNT_RECORDS_DIR="+left.Path)
			}
			if forwardInput {
				j.Stdin = io.Reader(os.Stdin)
			}
			received, stop := signals()
			defer stop()
			began := time.Now()
			err := launch.Run(c.Context(), j, received)
			var failure *launch.Failure
			if errors.As(err, &failure) {
				report := runReport{Seconds: time.Since(began).Seconds(), First: failure.First.Rank, Exits: failure.Exits}
				if left != nil {
					summary, text := lastRecords(left)
					report.Records, err = &summary, fmt.Errorf("%w\n%s", err, text)
				}
				if wantsJSON(c) {
					if err := printJSON(c, report); err != nil {
						return err
					}
				}
				return &exitError{failure.Status(), err}
			}
			if err != nil {
				return classify(err)
			}
			if wantsJSON(c) {
				return printJSON(c, runReport{OK: true, Seconds: time.Since(began).Seconds(), First: -1})
			}
			return nil
		},
	}
	f := c.Flags()
	f.SetInterspersed(false) // what follows the program is the program's
	f.IntVarP(&world, "ranks", "n", 1, "number of ranks")
	f.IntVar(&hosts, "hosts", 1, "pretend that the ranks run on so many hosts")
	f.BoolVar(&prefix, "prefix", false, "put [rank] before every line of output")
	f.BoolVar(&bind, "bind", false, "bind each rank to a CPU of its own, if there are enough")
	f.BoolVar(&forwardInput, "stdin", false, "give standard input to rank 0; without it no rank has any")
	f.DurationVar(&grace, "grace", 3*time.Second, "how long the other ranks may go on after the first failure")
	f.StringVar(&transports, "transports", "", "set SHUNT_TRANSPORTS")
	f.StringVar(&algo, "algo", "", "set SHUNT_ALGO")
	f.StringVar(&recordsDir, "records", "", "directory for what the ranks ran last, if their communicator fails")
	f.StringArrayVar(&env, "env", nil, "set NAME=VALUE for every rank")
	return c
}

// runReport is what run --json prints when the job has ended.
type runReport struct {
	OK      bool          `json:"ok"`
	Seconds float64       `json:"seconds"`
	First   int           `json:"first_failed_rank"` // -1: none
	Exits   []launch.Exit `json:"exits,omitempty"`   // of all ranks, when one failed

	Records *records.Summary `json:"records,omitempty"` // with --records, when one failed
}
