package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/records"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// fail runs a rank of a job in which rank 2 does something wrong in the second
// collective; this binary runs it as `fail HOW FIFO`. Rank 2 learns from the FIFO that
// the others are in that collective.
func fail(how, fifo string) int {
	c, err := host.Init(context.Background(), host.Options{})
	if err == nil {
		err = errors.Join(failIn(c, how, fifo), c.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 5
	}
	return 0
}

func failIn(c *host.Communicator, how, fifo string) error {
	x := make([]float32, 8)
	p := unsafe.Pointer(&x[0])
	if err := c.AllReduce(p, p, 8, plugin.Float32, plugin.OpSum, nil); err != nil {
		return err
	}
	if how == "disagree" { // all compare what they call for the first time
		if c.Rank() == 2 {
			return c.Broadcast(p, p, 8, plugin.Float32, 2, nil)
		}
		return c.AllReduce(p, p, 8, plugin.Float32, plugin.OpMax, nil)
	}
	inside, err := os.OpenFile(fifo, os.O_RDWR, 0) // open until the failure, or what is in it is gone
	if err != nil {
		return err
	}
	defer inside.Close()
	if c.Rank() != 2 {
		sum, err := c.Start(&host.Operation{Collective: plugin.AllReduce, DType: plugin.Float32, Op: plugin.OpSum, Send: p,
			Recv: p, Count: 8})
		if err != nil {
			return err
		}
		for len(c.Records()) < 2 && c.Err() == nil {
			runtime.Gosched()
		}
		_, err = inside.Write([]byte{1})
		err = errors.Join(err, sum.Wait(context.Background()))
		if how == "lose" {
			err = errors.Join(err, awaitLoss(fifo+".lost"))
		}
		return err
	}
	if _, err := io.ReadFull(inside, make([]byte, 2)); err != nil {
		return err
	}
	switch how {
	case "die":
		return unix.Kill(os.Getpid(), unix.SIGKILL)
	case "lose": // its host: the kernel ends the rank with its launcher
		lost := fmt.Sprint(os.Getppid(), parent(os.Getppid()))
		err := errors.Join(os.WriteFile(fifo+".lost", []byte(lost), 0o600), unix.Kill(os.Getppid(), unix.SIGKILL))
		if err == nil {
			select {}
		}
		return err
	}
	c.Abort("it will not come")
	return nil
}

// awaitLoss returns when the user's launcher has seen the end of the lost one, or of the remote shell around it.
func awaitLoss(file string) error {
	text, err := os.ReadFile(file)
	var launcher, shell int
	if err == nil {
		_, err = fmt.Sscan(string(text), &launcher, &shell)
	}
	there := func(pid int) bool { return unix.Kill(pid, 0) == nil }
	for err == nil && (there(launcher) || shell != parent(os.Getppid()) && there(shell)) {
		runtime.Gosched()
	}
	return err
}

// parent returns a process's parent, 0 if it is not there.
func parent(pid int) (number int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, _ = fmt.Sscanf(string(text[bytes.LastIndexByte(text, ')')+1:]), " %c %d", new(rune), &number)
	return number
}

// failing runs such a job with --records, and returns what is printed at its end.
func failing(t *testing.T, dir, how string, flags ...string) (stdout, summary string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	args := append([]string{"run", "-n", "3", "--grace", "1m", "--records", dir}, flags...)
	stdout, stderr, code := shunt(t, append(args, "--", self, "fail", how, fifo)...)
	require.NotContains(t, []int{0, exitUsage}, code, stderr)
	at := strings.Index(stderr, "\nshunt run: rank ")
	require.Positive(t, at, stderr)
	lines := strings.SplitAfter(stderr[at+1:], "\n")
	for len(lines) > 0 && strings.HasPrefix(lines[0], "shunt run: ") { // how the job ended
		lines = lines[1:]
	}
	return stdout, strings.Join(lines, "")
}

func TestRunShowsWhereRanksWere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "for it")
	for _, test := range []struct{ how, want string }{
		{"stay away", `communicator world of 3 failed: aborted: .*rank 2 aborted: it will not come
  done with #1 all_reduce: rank 2 \(pid \d+, host .+\)  <- 1 BEHIND
  in #2 all_reduce: ranks 0-1
`},
		{"die", `communicator world of 3 failed: peer_died: rank 2 \(pid \d+ on host .+
  in #2 all_reduce: ranks 0-1
  no file: rank 2 \(ended or stopped without writing one, or closed before the failure\)
`}, // although one of the job before is there
		{"disagree", `communicator world of 3 failed: mismatch: ranks disagree: rank 0 called #2 all_reduce, .*; rank 2 called #2 broadcast, .*
  in #2 all_reduce: ranks 0-1
  in #2 broadcast: rank 2
`},
	} {
		_, summary := failing(t, dir, test.how)
		require.Regexp(t, "^"+test.want+"the records are in "+regexp.QuoteMeta(dir)+"\n$", summary, test.how)
	}
	stdout, stderr, code := shunt(t, "records", dir) // all jobs'
	require.Zero(t, code, stderr)
	for _, failure := range []string{"aborted", "peer_died", "mismatch"} {
		require.Regexp(t, `(?m)^communicator world of 3 in job [0-9a-f]{8} failed: `+failure+`: `, stdout)
	}

	stdout, _ = failing(t, dir, "die", "--json")
	var report runReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.Len(t, report.Records.Communicators, 1)
	last := report.Records.Communicators[0]
	require.Equal(t, []int{2}, last.Missing)
	files, err := filepath.Glob(filepath.Join(dir, "world."+last.Job[:8]+".*.json"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	stdout, stderr, code = shunt(t, append([]string{"records"}, files...)...)
	require.Zero(t, code, stderr)
	require.Regexp(t, `^communicator world of 3 failed: peer_died: `, stdout)
	stdout, _, code = shunt(t, "records", "--json", files[0], dir)
	agrees(t, "records", stdout, "records --json")
	require.Zero(t, code)
	var summary records.Summary
	require.NoError(t, json.Unmarshal([]byte(stdout), &summary))
	require.Len(t, summary.Communicators, 4)
}

func TestRunWithoutRecords(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "old.json"), []byte("{}"), 0o600))
	_, stderr, code := shunt(t, "run", "--records", dir, "--", "sh", "-c", "exit 7")
	require.Equal(t, 7, code)
	require.True(t, strings.HasSuffix(stderr, "\nthere are no records in "+dir+": no communicator failed, or no rank could write one\n"), stderr)
	_, stderr, code = shunt(t, "run", "--records", dir, "--", "sh", "-c", "echo x > $SHUNT_RECORDS_DIR/new.json; exit 7")
	require.Equal(t, 7, code)
	require.Contains(t, stderr, "\n"+filepath.Join(dir, "new.json")+" is skipped: not a report: ")
	_, stderr, code = shunt(t, "run", "--records", dir, "--", "sh", "-c", "rm -r $SHUNT_RECORDS_DIR; exit 7")
	require.Equal(t, 7, code)
	require.Contains(t, stderr, "\nno records: open ")
	_, stderr, code = shunt(t, "run", "--records", dir, "--timeout", "100ms", "--", "sleep", "60")
	require.Equal(t, exitTimeout, code)
	require.Regexp(t, "set SHUNT_TIMEOUT .* well below --timeout\n$", stderr)
	stdout, stderr, code := shunt(t, "run", "--records", dir, "--", "true")
	require.Zero(t, code)
	require.Empty(t, stdout+stderr)
	_, stderr, code = shunt(t, "run", "--records", "/dev/null/x", "--", "true")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "directory of records: ")
}

// Of two jobs that run at a time nobody could tell whose files come into one directory.
func TestRecordsOfTwoJobs(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	line := []string{"run", "--records", dir, "--", self, "run", "--records", dir, "true"}
	_, stderr, code := shunt(t, line...)
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "shunt: another shunt run writes its records into "+dir+"; name a directory for each job\n")
	line[len(line)-2] = t.TempDir()
	_, stderr, code = shunt(t, line...)
	require.Zero(t, code, stderr)
}

func TestRecordsOfNothing(t *testing.T) {
	dir := t.TempDir()
	_, stderr, code := shunt(t, "records", dir)
	require.Equal(t, exitWrong, code)
	require.Equal(t, "shunt: no records in "+dir+"\n", stderr)
	_, stderr, code = shunt(t, "records", filepath.Join(dir, "gone"))
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "no such file")
}
