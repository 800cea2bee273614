package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/records"
	"github.com/shunt-ccl/shunt/plugin"
)

// agentMessage is a message from the launcher of one machine to the launcher of the job. It travels among the output of
// the ranks.
type agentMessage struct {
	Begun  bool         `json:"begun,omitempty"` // the first one
	Record *agentRecord `json:"record,omitempty"`
	End    *agentEnd    `json:"end,omitempty"` // the last one
}

// agentRecord is the report of a communicator that failed.
type agentRecord struct {
	Path string `json:"path"`
	Text []byte `json:"text"`
}

// agentEnd says how the ranks of one machine ended.
type agentEnd struct {
	First    int               `json:"first_failed_rank"` // -1: none
	Ago      time.Duration     `json:"failed_ago_ns"`     // since then
	Exits    []launch.Exit     `json:"exits"`             // of all, when one failed
	Error    string            `json:"error"`             // why they were not started
	Problems []string          `json:"problems"`
	Skipped  []records.Skipped `json:"skipped"` // files among the records that are none
	NCCL     *preloadState     `json:"nccl"`
}

// Lines on the lifeline that follow the end of a report: the records have been stored, so that they need not stay here;
// or not all of them.
const (
	keptLine = "kept"
	lostLine = "lost"
)

// keptWithin bounds how long the launcher of a machine waits for that. Where the job's launcher is lost, its line ends.
const keptWithin = 10 * time.Second

// newAgent is the launcher of one machine. It ends with its standard input, which ends with the launcher of the job.
func newAgent() *cobra.Command {
	return &cobra.Command{
		Use:    "agent",
		Short:  "Be the launcher of one machine for shunt run --hostfile",
		Hidden: true,
		Args:   flagsOnly,
		RunE: func(c *cobra.Command, _ []string) error {
			input := bufio.NewReader(c.InOrStdin())
			line, err := input.ReadBytes('\n')
			var r remoteJob
			if err != nil || json.Unmarshal(line, &r) != nil {
				return usage("shunt agent is for jobs that shunt run --hostfile launches: it reads one on standard input")
			}
			// Ranks whose output is not read end by themselves.
			ctx, lost := context.WithCancel(context.WithoutCancel(c.Context()))
			defer lost()
			received, stop := signals(ctx)
			defer stop()
			signal.Notify(received, syscall.SIGINT, syscall.SIGHUP) // ranks get none of what a remote shell ignores
			a := &agent{job: r, out: c.OutOrStdout(), err: c.ErrOrStderr(), kept: make(chan bool, 1)}
			go a.listen(input, received, lost)
			return a.run(ctx, received)
		},
	}
}

// agent is a launcher of one machine at work.
type agent struct {
	job      remoteJob
	out, err io.Writer
	kept     chan bool // whether the records are stored
	records  string    // directory of the ranks' records; "": none are wanted
	nccl     *preload
}

// listen does what the lines of the lifeline say, until it ends.
func (a *agent) listen(input *bufio.Reader, received chan<- os.Signal, lost func()) {
	defer func() {
		lost()
		a.kept <- false
	}()
	for {
		line, err := input.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSpace(line)
		if number, is := launch.ParseSignalLine(line); is {
			select {
			case received <- number:
			default: // as signals that come too fast for a program
			}
		}
		switch line {
		case launch.EndLine:
			lost()
		case keptLine, lostLine:
			a.kept <- line == keptLine
			return // nothing comes after it
		}
	}
}

// run runs the ranks, and reports how they ended.
func (a *agent) run(ctx context.Context, received <-chan os.Signal) error {
	if a.job.Marker != "" {
		_ = launch.WriteMessage(a.out, a.job.Marker, agentMessage{Begun: true}) // the report fails likewise
	}
	env, err := a.prepare()
	if a.nccl != nil {
		defer a.nccl.remove()
	}
	if err == nil {
		err = launch.Run(ctx, launch.Job{World: a.job.World, Part: &a.job.Part, Path: string(a.job.Path),
			Args: convert[string](a.job.Args), Env: env, Bind: a.job.Bind, Label: a.label(), Stdout: a.out, Stderr: a.err,
			Prefix:  a.job.Prefix,
			Restart: a.job.Restart, Grace: a.job.Grace}, received)
	}
	a.report(err)
	failure := (*launch.Failure)(nil)
	switch {
	case !errors.As(err, &failure):
		return err
	case failure.Told: // the launcher of the job says why
		return &exitError{failure.Status(), nil}
	}
	return &exitError{failure.Status(), err}
}

func (a *agent) label() string { return "shunt run on " + a.job.Machine }

// prepare makes of this process one that may start the ranks, and returns what their environment has besides.
func (a *agent) prepare() ([]string, error) {
	if err := os.Chdir(string(a.job.Dir)); err != nil {
		return nil, plugin.Errorf(plugin.System, "%s: %w", a.label(), err)
	}
	for _, entry := range convert[string](a.job.Env) {
		name, value, _ := strings.Cut(entry, "=")
		if err := os.Setenv(name, value); err != nil {
			return nil, plugin.Errorf(plugin.InvalidArgument, "%s: %w", a.label(), err)
		}
	}
	var env []string
	if a.job.Records != "" {
		dir := filepath.Join(os.TempDir(), a.job.Records)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, plugin.Errorf(plugin.System, "%s: directory of records: %w", a.label(), err)
		}
		a.records = dir
		removeAfterDeath(dir)
		env = append(env, "SHUNT_RECORDS_DIR="+dir)
	}
	if a.job.NCCL {
		var err error
		if a.nccl, err = newPreload(); err != nil {
			return nil, plugin.Errorf(plugin.CodeOf(err), "%s: %w", a.label(), err)
		}
		env = append(env, a.nccl.env(os.Environ())...)
	}
	return env, nil
}

// removeAfterDeath has a shell remove a directory, if it is empty, once this process is killed, as the job's guard does
// where its launcher is.
func removeAfterDeath(dir string) {
	cmd := exec.Command("/bin/sh", "-c", `read -r line; rmdir "$1"`, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends this process's group does not end it
	if _, err := cmd.StdinPipe(); err != nil || cmd.Start() != nil {
		return // an empty directory does no harm
	}
	go func() { _ = cmd.Wait() }() // which keeps the pipe open
}

// report tells the launcher of the job how the ranks ended, and hands over their records. Where that launcher is lost,
// the records stay.
func (a *agent) report(err error) {
	if a.job.Marker == "" {
		return
	}
	end := agentEnd{First: -1}
	failure := (*launch.Failure)(nil)
	if errors.As(err, &failure) {
		end.First, end.Exits = failure.First.Rank, failure.Exits
	} else if err != nil {
		end.Error = err.Error()
	}
	if a.nccl != nil {
		state, err := a.nccl.state()
		if err != nil {
			end.Problems = append(end.Problems, err.Error())
		} else {
			end.NCCL = &state
		}
	}
	var sent []string
	if a.records != "" {
		defer func() { _ = os.Remove(a.records) }() // unless there are files in it
		var err error
		end.Skipped, err = records.Each(a.records, func(path string, text []byte) error {
			sent = append(sent, path)
			return launch.WriteMessage(a.out, a.job.Marker, agentMessage{Record: &agentRecord{path, text}})
		})
		if err != nil {
			end.Problems = append(end.Problems, "no records: "+err.Error())
		}
	}
	if failure != nil {
		end.Ago = time.Since(failure.Began) - failure.First.After
	}
	if launch.WriteMessage(a.out, a.job.Marker, agentMessage{End: &end}) != nil || a.records == "" {
		return
	}
	select {
	case stored := <-a.kept:
		if stored {
			for _, path := range sent {
				_ = os.Remove(path) // a leftover in the temporary directory does no harm
			}
		}
	case <-time.After(keptWithin):
	}
}
