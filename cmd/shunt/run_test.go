package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/terminaltest"
)

// A job that cannot start for lack of descriptors says so, and what to do, wherever the launcher has no more of them.
func TestLauncherWithFewDescriptors(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	failed := 0
	for limit := 12; limit <= 40; limit++ {
		script := fmt.Sprintf("ulimit -n %d; exec %s run -n 2 true", limit, self)
		text, err := exec.Command("sh", "-c", script).CombinedOutput()
		if err == nil {
			break
		}
		failed++
		require.Contains(t, string(text), "raise the limit of this process (ulimit -n)", "with %d", limit)
	}
	require.Greater(t, failed, 4)
}

func TestRestarts(t *testing.T) {
	const third = `test $TORCHELASTIC_RESTART_COUNT = 2`
	stdout, stderr, code := shunt(t, "run", "-n", "2", "--json", "--max-restarts", "3", "sh", "-c", third)
	require.Zero(t, code, stderr)
	require.Contains(t, stderr, "starting the job again, 2 of 3")
	require.NotContains(t, stderr, "3 of 3")
	var report runReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.True(t, report.OK)
	require.Equal(t, 2, report.Restarts)

	_, stderr, code = shunt(t, "run", "-n", "2", "--max-restarts", "1", "sh", "-c", third)
	require.Equal(t, 1, code)
	require.Equal(t, 1, strings.Count(stderr, "starting the job again"))

	// Each start is at a meeting place of its own, so that what is left of the last one is not met.
	stdout, _, _ = shunt(t, "run", "--max-restarts", "1", "sh", "-c", "echo $SHUNT_ID; exit 1")
	ids := strings.Fields(stdout)
	require.Len(t, ids, 2)
	require.NotEqual(t, ids[0], ids[1])
}

// nohup, and shells that start a job in the background, have it ignore signals.
func TestSignalsThatAreIgnored(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for _, name := range []string{"HUP", "INT"} {
		const program = `trap '' NAME; exec "$0" run sh -c 'kill -NAME $PPID; sleep 0.2; echo done'`
		out, err := exec.Command("sh", "-c", strings.ReplaceAll(program, "NAME", name), self).CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		require.Equal(t, "done\n", string(out))
	}
}

// A job that is started from a terminal is not in its foreground, where a program that reads the terminal is stopped.
func TestStdinOfATerminal(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for typed, program := range map[string]string{
		"typed\n\x04":  "read line; test \"$line\" = typed && ! read line", // the end of the input
		"\n":           "exec <&-",                                         // standard input that is not read
		"a password\n": "! read line 2>&1 </dev/tty",                       // an error, at once
	} {
		near, far := terminaltest.Open(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		cmd := exec.CommandContext(ctx, self, "run", "--stdin", "sh", "-c", program)
		cmd.Stdin, cmd.SysProcAttr = far, &syscall.SysProcAttr{Setsid: true, Setctty: true}
		_, err := near.WriteString(typed)
		require.NoError(t, err)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", program, out)
		cancel()
	}
}

// A job whose launcher got a signal is not restarted.
func TestNoRestartAfterASignal(t *testing.T) {
	// What this process handles its children do not inherit ignored, as below nohup.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	t.Cleanup(func() { signal.Stop(signals) })
	for name, number := range map[string]int{"HUP": 1, "INT": 2, "QUIT": 3, "TERM": 15} {
		_, stderr, code := shunt(t, "run", "-n", "1", "--max-restarts", "3", "sh", "-c", "kill -"+name+" $PPID; exec sleep 3")
		require.Equal(t, 128+number, code, stderr)
		require.NotContains(t, stderr, "starting the job again")
	}
}

func TestJobTimeout(t *testing.T) {
	for name, program := range map[string]string{
		"the ranks go on":   "sleep 60",
		"they end well":     "trap 'exit 0' TERM; sleep 60 & wait",
		"restarts included": "exit 1",
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := shunt(t, "run", "-n", "2", "--json", "--timeout", "300ms", "--max-restarts", "1000000", "sh",
				"-c", program)
			require.Equal(t, exitTimeout, code, stderr)
			require.Contains(t, stderr, "the job took longer than --timeout 300ms")
			var report runReport
			require.NoError(t, json.Unmarshal([]byte(stdout), &report), stdout)
			require.False(t, report.OK)
			require.Equal(t, 1, strings.Count(strings.SplitAfter(stderr, "\n")[0], "shunt run: "), stderr)
			if name == "the ranks go on" {
				require.Equal(t, -1, report.First, "none failed by itself")
				require.True(t, report.Exits[0].Ended)
			}
		})
	}
	_, stderr, code := shunt(t, "run", "--timeout", "60s", "true")
	require.Zero(t, code, stderr)
}

// What --env cannot change is refused; all else reaches the ranks.
func TestEnvOfFlags(t *testing.T) {
	for flag, entry := range map[string]string{"--transports=builtin:shm": "SHUNT_TRANSPORTS=builtin:shm",
		"--algo=all_reduce=shm/two_shot": "SHUNT_ALGO=", "--records=" + t.TempDir(): "SHUNT_RECORDS_DIR=x",
		"--hosts=2": "SHUNT_HOST_ID=x"} {
		name, _, _ := strings.Cut(entry, "=")
		by, _, _ := strings.Cut(flag, "=")
		_, stderr, code := shunt(t, "run", "-n", "2", flag, "--env", entry, "true")
		require.Equal(t, exitUsage, code, stderr)
		require.Contains(t, stderr, "--env "+name+" has no effect: "+by+" sets this variable")
		stdout, stderr, code := shunt(t, "run", "--env", name+"=given", "--env", "SHUNT_RANKS=1", "sh", "-c",
			"echo $"+name+" $SHUNT_RANKS")
		require.Zero(t, code, stderr)
		require.Equal(t, "given 1\n", stdout)
	}
}

// Ranks that a program ends without a use for them do not keep the others from a smaller job.
func TestSmallerJob(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	// The launcher tells rank 0 of their end while that waits for rank 1.
	stdout, stderr, code := shunt(t, "run", "-n", "4", "sh", "-c",
		`case $SHUNT_RANK in 1) sleep 0.7;; 2|3) exit 0;; esac; SHUNT_WORLD=2 exec "$0" join`, self)
	require.Zero(t, code, stderr)
	require.Equal(t, strings.Repeat("the sum of 2 is 1\n", 2), stdout)
}
