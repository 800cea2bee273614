package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/records"
	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
)

// runner is the command run, and its flags.
type runner struct {
	world, hosts, restarts               int
	prefix, forwardInput, bind, overNCCL bool
	grace, timeout                       time.Duration
	transports, algo, recordsDir         string
	env                                  []string
	over                                 remote
	machines                             []launch.Machine // of a hostfile; nil: the job is of this one
}

func newRun() *cobra.Command {
	var r runner
	c := &cobra.Command{
		Use:   "run [flags] [--] PROGRAM [ARGUMENT...]",
		Short: "Run a program as the ranks of a job",
		Long: `Run a program as the ranks of a job, on this machine or those of a hostfile.

Every rank gets SHUNT_RANK, SHUNT_WORLD and SHUNT_ID, by which it finds the others, and
what torch.distributed reads: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
MASTER_ADDR and MASTER_PORT. Signals are passed on: Ctrl-Z stops the ranks of this
machine, too, and fg continues them; without a shell it does nothing. When a rank fails,
the others have --grace to report it themselves and are then ended. --timeout ends the
job, and so does a second SIGINT or SIGTERM, 0.5 s after the first or later: the ranks
get SIGTERM, and after --grace, 2 s at least, SIGKILL. No process of the job outlives
it, but for those that have begun a session of their own (setsid), and those in a
process group of their own whose environment was cleared.

With --prefix, and where the output goes to a file or a pipe, lines of ranks of up to
1 MiB do not mix, and PYTHONUNBUFFERED=1 is set, unless it is set already: Python would
keep output back.

With --records DIR, ranks whose communicator fails write there what they ran last,
and a failed job ends with a summary: which ranks were in which call, which were
behind, and which wrote no file. See shunt records. A communicator that hangs fails
after SHUNT_TIMEOUT, which has to be shorter than --timeout.

With --nccl a program for NVIDIA's NCCL runs over Shunt unchanged: Shunt's libnccl.so.2
is loaded before the program's own (LD_PRELOAD). A message says so when no process
loaded it.

With --max-restarts N, a job that has failed is started again from the beginning,
N times at most, by all ranks and with a new meeting place; as with torchrun,
TORCHELASTIC_RESTART_COUNT counts the restarts. A job that ended by a signal to
shunt run is not started again.

With --hostfile FILE the ranks run on several machines, as mpirun and deepspeed start
them: lines of "node1 slots=8", filled in their order. On each, the command
--remote-shell starts this binary under the same path, which starts the ranks there in
the same working directory. The remote shell has to pass standard input and output on:
a machine that does not report at its end has failed. SHUNT_*, NCCL_*, UCX_*, CUDA_*,
PYTHON*, OMP_*, PATH, LD_LIBRARY_PATH, VIRTUAL_ENV and --env are set there too.
Without -n all slots are used. The ranks meet at --address, which all must reach, by a
secret of the job's own. A rank that fails ends the job on all machines, and so does a
machine that is lost. --records brings the records of all machines together in DIR
here.

Exit status: that of the first rank to fail, or 128 plus the number of the signal that
ended it, which counts before other failures within 0.2 s; 124 after --timeout, 2 or 3
when the job could not be started, or 3 when all ranks succeeded and their output could
not be written.`,
		Example: "  shunt run -n 4 --prefix --records records -- python3 train.py --epochs 3",
		Args:    atLeastOne("PROGRAM"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := r.check(c); err != nil {
				return err
			}
			return r.start(c, args)
		},
	}
	r.flags(c)
	return c
}

func (r *runner) flags(c *cobra.Command) {
	f := c.Flags()
	f.SetInterspersed(false) // what follows the program is the program's
	f.IntVarP(&r.world, "ranks", "n", 1, "number of ranks")
	f.IntVar(&r.hosts, "hosts", 1, "pretend that the ranks run on this many hosts")
	f.BoolVar(&r.prefix, "prefix", false, "put [rank] before every line of output")
	f.BoolVar(&r.overNCCL, "nccl", false, "load Shunt's libnccl.so.2 in place of NVIDIA's")
	f.BoolVar(&r.bind, "bind", false, "bind each rank to a CPU of its own, if there are enough")
	f.BoolVar(&r.forwardInput, "stdin", false, "give standard input to rank 0; without it no rank has any")
	f.StringVar(&r.over.hostfile, "hostfile", "", "machines of the job: lines of HOST slots=N")
	f.StringVar(&r.over.shell, "remote-shell", "ssh -o BatchMode=yes -o ServerAliveInterval=15",
		"command that runs another one on a host")
	f.StringVar(&r.over.address, "address", "", "where the ranks of a hostfile reach rank 0 (default its first host)")
	f.IntVar(&r.over.port, "port", 0, "first of the 9 ports that the ranks of a hostfile meet on there; 0: any")
	f.DurationVar(&r.timeout, "timeout", 0, "end the job, restarts included, that takes longer; 0: never")
	f.IntVar(&r.restarts, "max-restarts", 0, "start a failed job again, at most this many times")
	f.DurationVar(&r.grace, "grace", 3*time.Second, "how long ranks may go on after the first failure, and after SIGTERM")
	f.StringVar(&r.transports, "transports", "", "set SHUNT_TRANSPORTS")
	f.Var((*override)(&r.algo), "algo", "set SHUNT_ALGO")
	f.StringVar(&r.recordsDir, "records", "", "directory for what the ranks ran last, if their communicator fails")
	f.StringArrayVar(&r.env, "env", nil, "set NAME=VALUE for every rank")
}

// check rejects flags that do not go together, and reads the hostfile.
func (r *runner) check(c *cobra.Command) error {
	for _, name := range []string{"address", "port", "remote-shell"} {
		if r.over.hostfile == "" && c.Flags().Changed(name) {
			return usage("--%s is for --hostfile", name)
		}
	}
	if r.over.hostfile != "" {
		if c.Flags().Changed("hosts") || r.forwardInput {
			return usage("--hostfile excludes --hosts and --stdin, which are of one machine")
		}
		if !c.Flags().Changed("ranks") {
			r.world = 0
		} else if r.world < 1 {
			return checkWorld(r.world, 1)
		}
		var err error
		if r.machines, err = r.over.machines(r.world); err != nil {
			return err
		}
	} else if err := checkWorld(r.world, r.hosts); err != nil {
		return err
	}
	switch {
	case r.grace < 0:
		return usage("--grace %v is negative", r.grace)
	case r.timeout < 0:
		return usage("--timeout %v is negative", r.timeout)
	case r.restarts < 0:
		return usage("--max-restarts %d is negative", r.restarts)
	case r.restarts > 0 && r.recordsDir != "":
		return usage("--max-restarts and --records exclude each other: records are of one run")
	case r.restarts > 0 && r.forwardInput:
		return usage("--max-restarts and --stdin exclude each other: what rank 0 has read is gone")
	}
	for _, entry := range r.env {
		name, _, has := strings.Cut(entry, "=")
		if !has || name == "" {
			return usage("--env %q; want NAME=VALUE", entry)
		}
		if by := r.sets(name); by != "" {
			return usage("--env %s has no effect: %s sets this variable", name, by)
		}
	}
	return nil
}

// sets returns what sets a variable for the ranks, so that --env has no effect on it, or "".
func (r *runner) sets(name string) string {
	switch {
	case launch.Sets(name):
		return "shunt run"
	case name == "SHUNT_HOST_ID" && r.hosts > 1:
		return "--hosts"
	case name == "SHUNT_TRANSPORTS" && r.transports != "":
		return "--transports"
	case name == "SHUNT_ALGO" && r.algo != "":
		return "--algo"
	case name == "SHUNT_RECORDS_DIR" && r.recordsDir != "":
		return "--records"
	case name == "SHUNT_SECRET" && r.machines != nil && os.Getenv(name) == "":
		return "shunt run --hostfile, unless its own environment has it,"
	}
	return ""
}

// start runs the job to its end, and says how that was.
func (r *runner) start(c *cobra.Command, args []string) error {
	j := launch.Job{
		World: r.world, Hosts: r.hosts, Bind: r.bind, Path: args[0], Args: args[1:], Env: r.env, Label: "shunt run",
		Stdout: c.OutOrStdout(), Stderr: c.ErrOrStderr(), Prefix: r.prefix, Grace: max(r.grace, 1),
	}
	if r.transports != "" {
		j.Env = append(j.Env, "SHUNT_TRANSPORTS="+r.transports)
	}
	if r.algo != "" {
		j.Env = append(j.Env, "SHUNT_ALGO="+r.algo)
	}
	var left *records.Dir
	var err error
	if r.recordsDir != "" {
		if left, err = records.Make(r.recordsDir); err != nil {
			return err
		}
		defer left.Close()
	}
	var gather *gathering // of the machines of a hostfile
	var preloaded *preload
	switch {
	case r.machines != nil:
		gather = newGathering(r.machines, left, r.overNCCL, wantsJSON(c))
		if j, err = r.over.spread(j, r.machines, gather); err != nil {
			return err
		}
	case left != nil:
		j.Env = append(j.Env, "SHUNT_RECORDS_DIR="+left.Path)
	}
	if r.overNCCL && r.machines == nil {
		if preloaded, err = newPreload(); err != nil {
			return err
		}
		defer preloaded.remove()
		j.Env = append(j.Env, preloaded.env(slices.Concat(os.Environ(), j.Env))...)
	}
	if r.forwardInput {
		if j.Stdin, err = input(); err != nil {
			return err
		}
	}
	received, stop := signals(c.Context())
	defer stop()
	began := time.Now()
	attempts, err := attempt(c, j, r.timeout, r.restarts, received)
	ran := err == nil || errors.As(err, new(*launch.Failure)) || errors.As(err, new(*exitError))
	if r.overNCCL && ran {
		verdict := gather.verdict
		if preloaded != nil {
			verdict = preloaded.verdict
		}
		if text := verdict(); text != "" {
			fmt.Fprintln(c.ErrOrStderr(), "shunt run --nccl: "+text)
		}
	}
	report := runReport{Seconds: time.Since(began).Seconds(), Restarts: attempts - 1, First: -1}
	return finish(c, report, err, left, gather, received)
}

// input is standard input, for a rank. A terminal's is read here, as it stops processes that are not in its foreground.
func input() (io.Reader, error) {
	if !launch.Terminal(os.Stdin) {
		return os.Stdin, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, plugin.Errorf(plugin.System, "standard input: %w", descriptors.Advise(err, 2))
	}
	go func() {
		_, _ = io.Copy(write, os.Stdin) // until one of them ends
		_ = write.Close()
	}()
	return read, nil
}

// untilToEnd returns when prints has, or, as nobody may read what that prints, soon after a signal has asked for the
// end, and at any rate soon where the job was to end already.
func untilToEnd(over bool, signals <-chan os.Signal, prints func() error) error {
	const soon = time.Second
	var late <-chan time.Time
	var why error // nil: the status tells
	if over {
		late = time.After(soon)
	}
	printed := make(chan error, 1)
	go func() { printed <- prints() }()
	for {
		select {
		case err := <-printed:
			return err
		case <-late:
			return why
		case s := <-signals:
			if late == nil && slices.Contains(ending(), s) {
				why, late = plugin.Errorf(plugin.System, "%v before the report was taken", s), time.After(soon)
			}
		}
	}
}

// finish prints and returns how a job ended, with its records if any were wanted, and what was gathered of machines.
func finish(c *cobra.Command, report runReport, err error, left *records.Dir, gather *gathering,
	signals <-chan os.Signal) error {
	gather.close()
	var failure *launch.Failure
	var ended *exitError // the job took too long, and its ranks ended well
	switch {
	case errors.As(err, &failure):
		gather.blame(failure)
		report.Exits = failure.Exits
		if !failure.Told {
			report.First = failure.First.Rank
		}
	case errors.As(err, &ended):
	case err != nil:
		return err
	default:
		report.OK = true
	}
	problems := ""
	if gather != nil {
		if failure != nil {
			report.First, report.Exits = -1, nil // of launchers
		}
		gather.complete(&report, failure)
		problems = gather.problems()
	}
	if left != nil && failure != nil {
		summary, text := lastRecords(left, gather, failure.TimedOut)
		report.Records, err = &summary, fmt.Errorf("%w\n%s", err, text)
	}
	if wantsJSON(c) {
		over := ended != nil || failure != nil && (failure.TimedOut || failure.Asked != 0)
		if err := untilToEnd(over, signals, func() error { return printJSON(c, report) }); err != nil {
			return err
		}
	}
	switch {
	case ended != nil:
		return &exitError{ended.code, fmt.Errorf("%w%s", err, problems)}
	case failure == nil && problems != "":
		fmt.Fprintln(c.ErrOrStderr(), "shunt run:"+problems)
		return nil
	case failure == nil:
		return nil
	case failure.TimedOut:
		return &exitError{exitTimeout, fmt.Errorf("%w%s", err, problems)}
	}
	return &exitError{cmp.Or(failure.Status(), exitFailure), fmt.Errorf("%w%s", err, problems)}
}

// exitTimeout is the status of a job that --timeout has ended, as of the command timeout.
const exitTimeout = 124

// attempt runs a job until it succeeds, has failed once more than it may be started again, or is asked to end. It
// returns how often it ran.
func attempt(c *cobra.Command, j launch.Job, timeout time.Duration, restarts int,
	received <-chan os.Signal) (int, error) {
	ctx := context.WithoutCancel(c.Context()) // ranks whose output is not read end by themselves
	if timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, timeout)
		defer stop()
	}
	for ran := 1; ; ran++ {
		j.Restart = ran - 1
		err := launch.Run(ctx, j, received)
		failure, failed := errors.AsType[*launch.Failure](err)
		if ended := errors.Is(ctx.Err(), context.DeadlineExceeded); ended && (failed || err == nil) {
			text := fmt.Sprintf("shunt run: the job took longer than --timeout %v", timeout)
			if !failed { // its ranks take SIGTERM as a reason to end well
				return ran, &exitError{exitTimeout, errors.New(text)}
			}
			failure.TimedOut = true
			return ran, fmt.Errorf("%s\n%w", text, err)
		}
		if !failed || ran > restarts || failure.Asked != 0 {
			return ran, err
		}
		fmt.Fprintf(c.ErrOrStderr(), "%s\nshunt run: starting the job again, %d of %d\n", message(err), ran, restarts)
	}
}

// runReport is the output of run --json when the job has ended.
type runReport struct {
	OK      bool    `json:"ok"`
	Seconds float64 `json:"seconds"`

	Restarts int           `json:"restarts"`          // after failures, with --max-restarts
	First    int           `json:"first_failed_rank"` // -1: none before the job was to end, or its launcher was lost
	Exits    []launch.Exit `json:"exits,omitempty"`   // of all ranks, when one failed; of a hostfile, those that are known
	Hosts    []hostReport  `json:"hosts,omitempty"`   // of a hostfile

	Records *records.Summary `json:"records,omitempty"` // with --records, when one failed
}
