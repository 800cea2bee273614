package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/bench"
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
)

// tasks lists what this binary runs as a rank of one of its own jobs. A task reads
// its configuration and reports on descriptor 3.
var tasks = map[string]func(ctx context.Context, config []byte, report io.Writer) error{
	"bench": func(ctx context.Context, config []byte, report io.Writer) error {
		var c bench.Config
		if err := readConfig(config, &c); err != nil {
			return err
		}
		return bench.Rank(ctx, c, report)
	},
	"tune": func(ctx context.Context, config []byte, report io.Writer) error {
		var c bench.Config
		if err := readConfig(config, &c); err != nil {
			return err
		}
		return bench.AskRank(ctx, c, report)
	},
	"explain": explainRank,
	"topo":    topoRank,
	"probe":   probeRank,
}

func readConfig(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return plugin.Errorf(plugin.InvalidArgument, "configuration of a rank: %w", err)
	}
	return nil
}

func newRank() *cobra.Command {
	return &cobra.Command{
		Use:    "rank TASK CONFIGURATION",
		Short:  "Be a rank of a job that another command of this binary launched",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			stray := usage("shunt rank is for jobs that shunt itself launches")
			task := tasks[args[0]]
			if task == nil {
				return stray // and no hand on a descriptor that may be another's
			}
			report := os.NewFile(3, "report")
			if report == nil {
				return stray
			}
			err := task(c.Context(), []byte(args[1]), report)
			return errors.Join(err, report.Close())
		},
	}
}

// askRanks runs a task in a job of its own and decodes rank 0's report, JSON, into
// into. What the ranks write to standard error is part of the error; after a success,
// when it is warnings, it goes to warnings.
func askRanks(ctx context.Context, task string, config any, job launch.Job, into any, warnings io.Writer) error {
	text, err := json.Marshal(config)
	if err != nil {
		return plugin.Errorf(plugin.Internal, "%w", err)
	}
	self, err := itself()
	if err != nil {
		return err
	}
	job.Path, job.Args = self, []string{"rank", task, string(text)}
	job.Grace = time.Second
	var said tail
	if job.Stderr == nil {
		job.Stderr = &said
	}
	job.Stdout = job.Stderr
	job.Prefix = true
	read, write, err := os.Pipe()
	if err != nil {
		return plugin.Errorf(plugin.System, "%w", descriptors.Advise(err, 2))
	}
	result := make(chan []byte, 1)
	go func() {
		data, err := io.ReadAll(read)
		if err != nil {
			data = nil
		}
		result <- data
	}()
	job.Files = func(rank int) ([]*os.File, error) {
		if rank == 0 {
			return []*os.File{write}, nil
		}
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return nil, plugin.Errorf(plugin.System, "%w", err)
		}
		return []*os.File{null}, nil
	}
	received, stop := signals(ctx)
	defer stop()
	runErr := launch.Run(ctx, job, received)
	_ = write.Close() // closed already where rank 0 was started
	data := <-result
	_ = read.Close() // read to its end
	if runErr != nil {
		if said.text() != "" {
			return plugin.Errorf(plugin.CodeOf(runErr), "%w\n%s", runErr, said.text())
		}
		return runErr
	}
	if err := json.Unmarshal(data, into); err != nil {
		return plugin.Errorf(plugin.Protocol, "rank 0 reported no result: %w", err)
	}
	if text := said.text(); text != "" {
		fmt.Fprintln(warnings, text)
	}
	return nil
}

// tail keeps the end of what is written to it.
type tail struct{ kept []byte }

const maxTail = 8 << 10

// Write is called by one rank's output at a time.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if excess := len(t.kept) - maxTail; excess > 0 {
		t.kept = append(t.kept[:0], t.kept[excess:]...)
	}
	return len(p), nil
}

func (t *tail) text() string { return string(bytes.TrimSpace(t.kept)) }

// itself returns the file of this command, of which the ranks that it starts are copies.
func itself() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", plugin.Errorf(plugin.System, "ranks are copies of this command, whose path needs /proc to be mounted: %w",
			err)
	}
	return self, nil
}
