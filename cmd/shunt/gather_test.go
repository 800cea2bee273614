package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/host/report"
)

// oneEach has a rank on each of three machines, the third of which has another user.
const oneEach = "node0\nnode1\nme@node2\n"

// at returns what a host keeps its temporary files in, which machines has made beside the remote shell.
func at(flags []string, host string) string { return filepath.Join(filepath.Dir(flags[4]), host) }

// failingOn runs the job of failing on the machines of a hostfile. It returns what the launchers print at its end.
func failingOn(t *testing.T, flags []string, dir, how string, more ...string) (stdout, end string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	line := append(append([]string{}, flags...), "--grace", "1m", "--records", dir)
	stdout, stderr, code := shunt(t, append(append(line, more...), "--", self, "fail", how, fifo)...)
	require.NotContains(t, []int{0, exitUsage}, code, stderr)
	_, end, found := strings.Cut(stderr, "\nshunt run: the launcher on ")
	require.True(t, found, stderr)
	return stdout, end
}

func TestHostfileRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	flags, _ := machines(t, oneEach)
	stdout, end := failingOn(t, flags, dir, "stay away", "--json")
	require.Regexp(t, `\ncommunicator world of 3 failed: aborted: .*rank 2 aborted: it will not come
  done with #1 all_reduce: rank 2 \(pid \d+, host .+\)  <- 1 BEHIND
  in #2 all_reduce: ranks 0-1
the records are in `+regexp.QuoteMeta(dir)+`
$`, end)
	agrees(t, "run", stdout, "run --hostfile --records --json")
	var all runReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &all))
	require.Len(t, all.Records.Communicators, 1)
	require.Empty(t, all.Records.Communicators[0].Missing)
	for _, host := range []string{"node0", "node1", "me@node2"} {
		left, err := os.ReadDir(at(flags, host))
		require.NoError(t, err)
		require.Empty(t, left, "what was brought together stays on no host")
	}
	brought, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, brought, 3)
	stdout, stderr, code := shunt(t, "records", dir)
	require.Zero(t, code, stderr)
	require.True(t, strings.HasPrefix(stdout, "communicator world of 3 failed: aborted: "), stdout)

	_, end = failingOn(t, flags, dir, "die") // a rank, not its launcher
	require.Regexp(t, `\n  in #2 all_reduce: ranks 0-1
  no file: rank 2 \(ended or stopped without writing one, or closed before the failure\)
the records are in [^\n]*\n$`, end)
}

// A host that is lost is named, and where its records are; those of the others are brought together.
func TestHostfileRecordsOfALostHost(t *testing.T) {
	dir := t.TempDir()
	flags, _ := machines(t, oneEach)
	stdout, end := failingOn(t, flags, dir, "lose", "--json")
	require.Regexp(t, `^me@node2 (?:was ended by signal 9|exited with status 137) [^\0]*
  in #2 all_reduce: ranks 0-1
  no file: rank 2 [^\n]*
the records are in [^\n]*
on me@node2: its launcher ended without a report; what ranks wrote is in shunt-records-\w+-2 of the temporary `+
		`directory there\n$`, end)
	folder := regexp.MustCompile(`shunt-records-\w+-2`).FindString(end)
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(at(flags, "me@node2"), folder))
		return os.IsNotExist(err)
	}, 30*time.Second, 10*time.Millisecond, "no rank has written there")
	agrees(t, "run", stdout, "a host is lost")
	var all runReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &all))
	require.Equal(t, -1, all.First, "nobody says which of its ranks")
	require.Len(t, all.Exits, 2)
	lost := all.Hosts[2]
	require.Equal(t, "me@node2", lost.Host)
	require.Equal(t, []int{2}, lost.Ranks)
	require.NotZero(t, lost.Status)
	require.Equal(t, []string{"its launcher ended without a report; what ranks wrote is in " + folder +
		" of the temporary directory there"}, lost.Problems)
}

func TestHostfileRecordsThatCannotBeBrought(t *testing.T) {
	flags, _ := machines(t, two)
	dir := t.TempDir()
	// The first rank that ends ends the others, so all wait for the last.
	together := func() []string {
		const script = `: >$DONE/$SHUNT_RANK; until [ -e $DONE/0 -a -e $DONE/1 -a -e $DONE/2 -a -e $DONE/3 ]; do sleep 0.01; done`
		return []string{"--env", "DONE=" + t.TempDir(), "--env", "TOGETHER=" + script}
	}
	first := append(slices.Clone(flags), together()...)
	_, stderr, code := shunt(t, append(first, "--records", dir, "sh", "-c",
		`[ $SHUNT_RANK = 2 ] && echo x >$SHUNT_RECORDS_DIR/new.json; eval "$TOGETHER"; exit 7`)...)
	require.Equal(t, 7, code, stderr)
	match := regexp.MustCompile(`\nme@node1:(/.*/new\.json) is skipped: not a report: `).FindStringSubmatch(stderr)
	require.Len(t, match, 2, stderr)
	require.FileExists(t, match[1], "it stays where it is")

	second := append(slices.Clone(flags), together()...)
	_, stderr, code = shunt(t, append(second, "--records", dir, "sh", "-c",
		`rmdir $SHUNT_RECORDS_DIR 2>/dev/null; eval "$TOGETHER"; exit 7`)...)
	require.Equal(t, 7, code, stderr)
	require.Contains(t, stderr, "\nthere are no records in "+dir+": ")
	require.Regexp(t, `\non node0: no records: .*no such file or directory`, stderr)
	require.Regexp(t, `\non me@node1: no records: .*no such file or directory`, stderr)

	// What cannot be stored here stays there.
	text, err := json.Marshal(report.Head{Communicator: "world", World: 1})
	require.NoError(t, err)
	source := filepath.Join(t.TempDir(), "world.0.json")
	require.NoError(t, os.WriteFile(source, text, 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "world.0.json", "in the way"), 0o700))
	began := time.Now()
	_, stderr, code = shunt(t, append(flags, "-n", "1", "--records", dir, "--env", "SOURCE="+source, "sh", "-c",
		`cp $SOURCE $SHUNT_RECORDS_DIR; exit 7`)...)
	require.Equal(t, 7, code, stderr)
	require.Less(t, time.Since(began), keptWithin, "the launcher there is told")
	match = regexp.MustCompile(`\non node0: node0:(/.*/world\.0\.json) was not brought here: `).FindStringSubmatch(stderr)
	require.Len(t, match, 2, stderr)
	require.FileExists(t, match[1])
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "world.0.json")))

	// Reports of one name from two hosts are both kept.
	_, stderr, code = shunt(t, append(flags, "--records", dir, "--env", "SOURCE="+source, "sh", "-c",
		`[ $LOCAL_RANK = 1 ] || cp $SOURCE $SHUNT_RECORDS_DIR`)...)
	require.Zero(t, code, stderr)
	names, err := filepath.Glob(filepath.Join(dir, "world.0*.json"))
	require.NoError(t, err)
	require.Len(t, names, 2)

	require.NoError(t, os.RemoveAll(at(flags, "me@node1")))
	require.NoError(t, os.WriteFile(at(flags, "me@node1"), nil, 0o600))
	stdout, stderr, code := shunt(t, append(flags, "--json", "--records", dir, "sleep", "60")...)
	require.Equal(t, exitFailure, code, stderr)
	require.Contains(t, stderr, "shunt run on me@node1: directory of records: mkdir "+at(flags, "me@node1"))
	var all runReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &all))
	require.Contains(t, all.Hosts[1].Problems[0], "shunt run on me@node1: directory of records: mkdir ")
}

func TestHostfileJSON(t *testing.T) {
	flags, _ := machines(t, two)
	stdout, stderr, code := shunt(t, append(flags, "--json", "sh", "-c", `printf "out of $SHUNT_RANK"; exit 0`)...)
	require.Zero(t, code, stderr)
	printed, value, found := strings.Cut(stdout, "{")
	require.True(t, found, stdout)
	for _, rank := range []string{"0", "1", "2", "3"} {
		require.Contains(t, printed, "out of "+rank)
	}
	agrees(t, "run", "{"+value, "run --hostfile --json")
	var all runReport
	require.NoError(t, json.Unmarshal([]byte("{"+value), &all))
	all.Seconds = 0
	require.Equal(t, runReport{OK: true, First: -1,
		Hosts: []hostReport{{Host: "node0", Ranks: []int{0, 1}}, {Host: "me@node1", Ranks: []int{2, 3}}}}, all)

	stdout, stderr, code = shunt(t, append(flags, "--json", "--max-restarts", "1", "sh", "-c",
		`[ $SHUNT_RANK = 3 ] && exit 7; exec sleep 60`)...)
	require.Equal(t, 7, code, stderr)
	agrees(t, "run", stdout, "run --hostfile --json of a job that fails")
	require.NoError(t, json.Unmarshal([]byte(stdout), &all))
	require.False(t, all.OK)
	require.Equal(t, 1, all.Restarts)
	require.Equal(t, 3, all.First)
	require.Len(t, all.Exits, 4)
	for rank, e := range all.Exits {
		require.Equal(t, rank, e.Rank)
		require.Equal(t, []string{"node0", "me@node1"}[rank/2], e.Host)
	}
	require.Equal(t, 7, all.Exits[3].Status)
	require.Equal(t, syscall.SIGTERM, all.Exits[0].Signal, "its launcher was asked to end it, and reports")
	require.Equal(t, []int{143, 7}, []int{all.Hosts[0].Status, all.Hosts[1].Status})

	// A launcher that cannot start the ranks says why.
	stdout, stderr, code = shunt(t, append(flags, "-n", "1", "--json", "/does/not/exist")...)
	require.Equal(t, exitUsage, code, stderr)
	agrees(t, "run", stdout, "a program that is missing")
	all = runReport{}
	require.NoError(t, json.Unmarshal([]byte(stdout), &all))
	require.Equal(t, -1, all.First)
	require.Contains(t, all.Hosts[0].Problems[0], "shunt run on node0: exec: \"/does/not/exist\"")
}

// Signals reach the ranks, not the remote shells, which they would end before their launchers have reported.
func TestHostfileSignals(t *testing.T) {
	flags, _ := machines(t, "node0\n")
	here := filepath.Join(t.TempDir(), "here")
	text := "#!/bin/sh\ntrap 'exit 255' INT TERM USR1\nexec 3<&0\nshift\nsh -c \"$*\" <&3 &\nwait $!\n"
	require.NoError(t, os.WriteFile(flags[4], []byte(text), 0o700)) //nolint:gosec // a program
	self, err := os.Executable()
	require.NoError(t, err)
	var stdout strings.Builder
	cmd := exec.Command(self, append(flags, "--json", "sh", "-c",
		`trap 'kill $!; echo usr1; exit 9' USR1; sleep 60 & touch `+here+`; wait`)...)
	cmd.Stdout = &stdout
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { _, err := os.Stat(here); return err == nil }, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGUSR1))
	require.Error(t, cmd.Wait())
	require.Equal(t, 9, cmd.ProcessState.ExitCode())
	value, found := strings.CutPrefix(stdout.String(), "usr1\n")
	require.True(t, found, stdout.String())
	var all runReport
	require.NoError(t, json.Unmarshal([]byte(value), &all))
	require.Equal(t, 9, all.Exits[0].Status)
}

// The machine whose launcher ends first need not be the one whose rank failed first.
func TestHostfileBlamesTheFirstRankToFail(t *testing.T) {
	began := time.Now()
	ends := func(rank, status int, signal syscall.Signal, after time.Duration) gathered {
		return gathered{failed: began.Add(after), end: &agentEnd{First: rank,
			Exits: []launch.Exit{{Rank: rank - 1}, {Rank: rank, Status: status, Signal: signal, After: time.Hour}}}}
	}
	launchers := []launch.Exit{{Rank: 0, Status: 1, After: 2 * time.Second},
		{Rank: 1, Status: 137, After: 5 * time.Second}}
	for name, c := range map[string]struct {
		want  int
		hosts []gathered
	}{
		"killed":     {1, []gathered{ends(1, 1, 0, 1000*time.Millisecond), ends(3, -1, 9, 1100*time.Millisecond)}},
		"the second": {1, []gathered{ends(1, 1, 0, 1000*time.Millisecond), ends(3, 7, 0, 900*time.Millisecond)}},
		"the first":  {0, []gathered{ends(1, 1, 0, 1000*time.Millisecond), ends(3, 7, 0, 1001*time.Millisecond)}},
		"no report":  {0, []gathered{ends(1, 1, 0, 1000*time.Millisecond), {}}},
	} {
		t.Run(name, func(t *testing.T) {
			failure := &launch.Failure{First: launchers[0], Exits: launchers, Began: began}
			(&gathering{hosts: c.hosts}).blame(failure)
			require.Equal(t, launchers[c.want], failure.First)
		})
	}
}
