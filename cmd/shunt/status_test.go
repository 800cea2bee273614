package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// commandLines returns every command that users see, and those below them, each as its command line.
func commandLines(c *cobra.Command, line []string) map[*cobra.Command][]string {
	all := map[*cobra.Command][]string{c: line}
	for _, below := range c.Commands() {
		if !below.Hidden || below.Name() == "man" {
			for each, its := range commandLines(below, append(slices.Clip(line), below.Name())) {
				all[each] = its
			}
		}
	}
	return all
}

// TestTheSameMistakeHasTheSameStatus: whatever the command, what can be seen before anything runs is a usage error: a
// flag that there is not, a bad value of any flag, a flag without its value, a file that cannot be used, an argument
// too many.
func TestTheSameMistakeHasTheSameStatus(t *testing.T) {
	const gone = "/dev/null/x" // no file can be there
	free := map[string]bool{}  // flags whose text no command can judge alone
	for _, line := range []string{"bench --collective", "bench --nccl", "conformance --filter", "conformance --mode",
		"run --address", "run --remote-shell", "run --transports", "tune --nccl"} {
		free["shunt "+line] = true
	}
	refused := 0
	refuse := func(line []string, args ...string) {
		refused++
		_, stderr, code := shunt(t, append(slices.Clip(line), args...)...)
		require.Equal(t, exitUsage, code, "shunt %s %s: %s", strings.Join(line, " "), strings.Join(args, " "), stderr)
		require.Regexp(t, `(?m)^shunt( run)?: `, stderr)
	}
	arguments := map[string][]string{"shunt run": {"true"}, "shunt records": {t.TempDir()}, "shunt man": {t.TempDir()}}
	for c, line := range commandLines(newRoot(), nil) {
		refuse(line, "--no-such-flag")
		refuse(line, "--json=perhaps")
		if path := c.CommandPath(); path != "shunt run" && path != "shunt transports" { // which takes any
			refuse(line, append(slices.Clip(arguments[c.CommandPath()]), gone)...)
		}
		if len(arguments[c.CommandPath()]) > 0 {
			refuse(line)
			refuse(line, gone)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name := "--" + f.Name
			if f.NoOptDefVal == "" {
				refuse(line, name)
			}
			if free[c.CommandPath()+" "+name] || f.Name == "help" || f.Name == "version" {
				return
			}
			refuse(line, append([]string{name + "=" + gone}, arguments[c.CommandPath()]...)...)
		})
	}
	require.Greater(t, refused, 150)
	for _, line := range []string{"bench --transport=process:" + gone, "bench --transport=shared:/",
		"explain --transports=shm,rdma", "tune --transport=rdma:x", "conformance -n 1 --hosts 2"} {
		refuse(strings.Fields(line))
	}
}

// TestCommandsWhoseOutputIsNotRead: where the reader of standard output has gone, as head goes, a command ends as by
// SIGPIPE, and leaves nothing in the temporary directory.
func TestCommandsWhoseOutputIsNotRead(t *testing.T) {
	folder := t.TempDir()
	command := commandIn(t, folder)
	require.NoError(t, os.Mkdir(filepath.Join(folder, "nccl"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "nccl", "libnccl.so.2"), nil, 0o600)) // the loader ignores it
	for line, silent := range map[string]bool{
		"conformance -n 2 --short -v --filter ^barrier/":   true,
		"bench -n 2 --memory host --collective all_reduce": true,
		"explain -n 2 --memory host":                       true,
		"run --help":                                       true,
		"run --nccl -n 2 yes":                              false,
		"run --nccl -n 2 --prefix yes":                     false,
	} {
		t.Run(line, func(t *testing.T) {
			read, write, err := os.Pipe()
			require.NoError(t, err)
			require.NoError(t, read.Close())
			defer write.Close()
			left := t.TempDir()
			var stderr strings.Builder
			c := exec.Command(command, strings.Fields(line)...)
			c.Env, c.Stdout, c.Stderr = append(os.Environ(), "TMPDIR="+left), write, &stderr
			require.Error(t, c.Run())
			require.Equal(t, 128+int(syscall.SIGPIPE), c.ProcessState.ExitCode(), "%v: %s", c.ProcessState, stderr.String())
			require.Equal(t, silent, !regexp.MustCompile(`(?m)^shunt( run)?: `).MatchString(stderr.String()), stderr.String())
			entries, err := os.ReadDir(left)
			require.NoError(t, err)
			require.Empty(t, entries)
		})
	}
}

// Nobody need read the report of a job that was to end: the status tells.
func TestReportThatNobodyReads(t *testing.T) {
	command := commandIn(t, t.TempDir())
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	defer write.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, command, "run", "--json", "--timeout", "1s", "-n", "2", "--prefix", "yes")
	c.Stdout = write
	require.Error(t, c.Run())
	require.Equal(t, exitTimeout, c.ProcessState.ExitCode(), "%v", c.ProcessState)
}

// A signal ends a job that has succeeded while nobody reads its report, and the status does not say that it was read.
func TestSignalBeforeTheReportIsRead(t *testing.T) {
	folder := t.TempDir()
	command, done := commandIn(t, folder), filepath.Join(folder, "done")
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	defer write.Close()
	require.NoError(t, write.SetWriteDeadline(time.Now().Add(time.Millisecond)))
	_, err = write.Write(make([]byte, 1<<20)) // more than a pipe takes
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var stderr strings.Builder
	c := exec.Command(command, "run", "--json", "-n", "1", "sh", "-c", ": >"+done)
	c.Stdout, c.Stderr = write, &stderr
	require.NoError(t, c.Start())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	require.Eventually(t, func() bool { _, err := os.Stat(done); return err == nil }, 30*time.Second, time.Millisecond)
	for limit := time.After(30 * time.Second); ; {
		select {
		case <-ended:
			require.Equal(t, exitFailure, c.ProcessState.ExitCode(), stderr.String())
			require.Contains(t, stderr.String(), "terminated before the report was taken")
			return
		case <-limit:
			require.NoError(t, c.Process.Kill())
			t.Fatal("it still waits")
		case <-time.After(100 * time.Millisecond): // the first may be the ranks'
			_ = c.Process.Signal(syscall.SIGTERM)
		}
	}
}

// Ranks whose output is not read end by themselves: also those of a hostfile.
func TestRanksWhoseOutputIsNotRead(t *testing.T) {
	folder := t.TempDir()
	command, hosts, done := commandIn(t, folder), filepath.Join(folder, "hosts"), filepath.Join(folder, "done")
	require.NoError(t, os.WriteFile(hosts, []byte("localhost slots=1\n"), 0o600))
	// Were it to be ended then, this would be while it sleeps.
	script := `trap '' PIPE; while echo more; do :; done 2>/dev/null; sleep 1; : >` + done
	for _, flags := range [][]string{nil, {"--hostfile", hosts}, {"--hostfile", hosts, "--json"}} {
		read, write, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, read.Close())
		var stderr strings.Builder
		c := exec.Command(command, slices.Concat([]string{"run", "-n", "1"}, flags, []string{"sh", "-c", script})...)
		c.Stdout, c.Stderr = write, &stderr
		err = c.Run()
		require.NoError(t, write.Close())
		require.NoError(t, os.Remove(done), "%v: %v: %s", flags, err, stderr.String())
		require.NotContains(t, stderr.String(), "without a report")
	}
}
