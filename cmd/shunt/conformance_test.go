package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/conformance"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// In a network namespace of its own, which has not even a loopback interface that is up, ranks meet all the same.
func TestConformanceWithoutANetwork(t *testing.T) {
	if out, err := exec.Command("unshare", "--net", "true").CombinedOutput(); err != nil {
		t.Skipf("a network namespace: %v: %s", err, out)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command("unshare", "--net", self, "conformance", "--short", "-n", "2", "--filter", "barrier")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

const interruptingEnv = "INTERRUPTING_TRANSPORT"

func init() {
	if os.Getenv(interruptingEnv) != "" {
		host.Register(interrupting{})
	}
}

// interrupting is shm that interrupts the command: where three ranks open an endpoint, or in a case of broadcast. In
// the first form the endpoints of two fail to close.
type interrupting struct{ shm.Transport }

func (i interrupting) Info() plugin.Info {
	info := i.Transport.Info()
	info.Name = "interrupting"
	return info
}

func (i interrupting) Open(ctx context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	inCase := os.Getenv(interruptingEnv) == "case"
	if c.World == 3 && !inCase {
		return nil, interrupt(ctx, c.Rank)
	}
	e, err := i.Transport.Open(ctx, c)
	if err == nil && c.World == 2 {
		e = interruptingEndpoint{e, inCase}
	}
	return e, err
}

type interruptingEndpoint struct {
	plugin.Endpoint
	inCase bool
}

func (e interruptingEndpoint) Prepare(ctx context.Context, r plugin.Request, algorithm string) (*plugin.Plan, error) {
	if e.inCase && r.Collective == plugin.Broadcast {
		return nil, interrupt(ctx, r.Rank)
	}
	return e.Endpoint.Prepare(ctx, r, algorithm)
}

func (e interruptingEndpoint) Close() error {
	err := e.Endpoint.Close()
	if !e.inCase {
		err = errors.Join(err, errors.New("one of two stays open"))
	}
	return err
}

// interrupt interrupts the command and waits until that ends the ranks.
func interrupt(ctx context.Context, rank int) error {
	if rank == 0 {
		if err := syscall.Kill(os.Getppid(), syscall.SIGINT); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// The report of a run that is stopped leaves out the case that was running, and nothing else: not the last failure of a
// world when the next one is being opened.
func TestConformanceStopsWithWhatHasEnded(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for at, want := range map[string]string{"case": "", "open": "one of two stays open"} {
		c := exec.Command(self, "conformance", "--json", "--short", "-n", "2,3", "--filter", "^(barrier|broadcast)/",
			"--transport", "builtin:interrupting")
		c.Env = append(os.Environ(), interruptingEnv+"="+at)
		out, err := c.Output()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s", out)
		var report conformance.Report
		require.NoError(t, json.Unmarshal(out, &report), "%s\n%s", out, exit.Stderr)
		require.Greater(t, report.Duration, time.Duration(0))
		last := conformance.CaseResult{Outcome: conformance.Passed} // before the first case
		if n := len(report.Results); n > 0 {
			last = report.Results[n-1]
		}
		if want == "" {
			require.Equal(t, conformance.Passed, last.Outcome, "%s: %s", last.Name, last.Detail)
			continue
		}
		require.Equal(t, conformance.Failed, last.Outcome, last.Name)
		require.Regexp(t, "^close/w2/", last.Name)
		require.Contains(t, last.Detail, want)
	}
}

// What a failure says to run again has every flag that changes how a case runs.
func TestConformanceRunsACaseAgain(t *testing.T) {
	values := map[string]string{
		"transport": "process:" + os.DevNull, "hosts": "2", "memory": "cuda", "mode": "graph,mixed", "symmetric": "true",
		"short": "true", "seed": "7", "timeout": "5s",
	}
	chooses := []string{"ranks", "filter", "stop-after", "max-failures"} // which cases run
	reports := []string{"junit", "json-file", "verbose", "help"}
	parsed := func(args ...string) conformance.Config {
		var s conformanceFlags
		c := &cobra.Command{}
		s.flags(c)
		if err := c.ParseFlags(args); err != nil {
			t.Fatal(args, err)
		}
		if err := s.check(c); err != nil {
			t.Fatal(args, err)
		}
		s.config.Worlds, s.config.Filter = nil, nil
		return s.config
	}
	again := func(cfg conformance.Config, hosts int) conformance.Config {
		line := cfg.Again(&conformance.Case{Collective: plugin.AllReduce, World: 2}, hosts)
		args, ok := strings.CutPrefix(strings.ReplaceAll(line, "'", ""), "shunt conformance ")
		if !ok {
			t.Fatal(line)
		}
		return parsed(strings.Fields(args)...)
	}
	newConformance().LocalFlags().VisitAll(func(f *pflag.Flag) {
		value, hosts := values[f.Name], 1
		switch {
		case slices.Contains(chooses, f.Name) || slices.Contains(reports, f.Name):
			return
		case value == "":
			t.Errorf("--%s: a value is missing here, or that it does not change how a case runs", f.Name)
			return
		case f.Name == "hosts":
			hosts = 2
		}
		args := []string{"--" + f.Name + "=" + value}
		if f.Name == "mode" || f.Name == "symmetric" {
			args = append(args, "--memory=cuda")
		}
		cfg := parsed(args...)
		if reflect.DeepEqual(cfg, parsed()) {
			t.Errorf("%v change nothing", args)
		}
		if got := again(cfg, hosts); !reflect.DeepEqual(got, cfg) {
			t.Errorf("%v: again with %+v, want %+v", args, got, cfg)
		}
	})
}
