package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/bench"
	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
	"github.com/shunt-ccl/shunt/internal/builttest"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/internal/peertable"
)

func TestBench(t *testing.T) {
	stdout, stderr, code := shunt(t, "bench", "-n", "3", "--max", "256", "--factor", "8", "--budget", "1ms")
	require.Zero(t, code, stderr)
	for _, name := range []string{"all_reduce", "all_to_all_v", "scatter_v", "sendrecv", "put", "get", "barrier"} {
		require.Contains(t, stdout, "\n# "+name+"\n")
	}
	require.Contains(t, stdout, "# #wrong over all rows : 0 OK\n")
	rows := regexp.MustCompile(`(?m)^ +\d.*$`).FindAllString(stdout, -1)
	require.Greater(t, len(rows), 40)
	for _, row := range rows {
		fields := strings.Fields(row)
		require.Len(t, fields, 14, row)
		require.Equal(t, "0", fields[8], row)
		require.Contains(t, []string{"0", "-"}, fields[12], row)
	}
}

func TestBenchJSON(t *testing.T) {
	stdout, stderr, code := shunt(t, "bench", "--json", "-n", "1,2", "--collective", "all_reduce", "--min", "64", "--max",
		"64", "--dtype", "bfloat16", "--op", "avg", "--iters", "10")
	require.Zero(t, code, stderr)
	var results []benchResult
	require.NoError(t, json.Unmarshal([]byte(stdout), &results))
	require.Len(t, results, 2)
	require.Equal(t, 2, results[1].World)
	row := results[1].Rows[0]
	require.Equal(t, "bfloat16", row.DType)
	require.Equal(t, "avg", row.Op)
	require.Equal(t, int64(32), row.Count)
	require.Equal(t, 10, row.InPlace.Iterations)
	require.Positive(t, row.OutOfPlace.Microseconds)
	require.NotEmpty(t, row.Algorithm)
}

// Ranks have a CPU each where there are enough, unless --bind=false, and tables say so.
func TestBenchBinds(t *testing.T) {
	cpus, _ := launch.CPUs()
	for _, bind := range []bool{true, false} {
		for _, command := range []string{"bench", "tune -o " + filepath.Join(t.TempDir(), "t.json")} {
			// rank 0 of the benchmark is a shell that says where it may run
			args := append(strings.Fields(command), "-n", "1", "--memory", "host", "--collective", "all_reduce", "--min", "8",
				"--max", "8", "--iters", "3", fmt.Sprintf("--bind=%t", bind))
			if command == "bench" {
				args = append(args, "--under", `sh -c 'grep Cpus_allowed_list /proc/self/status >&2; exec "$@"' x`)
			}
			stdout, stderr, code := shunt(t, args...)
			require.Zero(t, code, stderr)
			require.Equal(t, bind, strings.Contains(stdout, bench.Bound+"\n"), stdout)
			if command == "bench" && cpus > 1 {
				require.Equal(t, bind, regexp.MustCompile(`Cpus_allowed_list:\s\d+\n`).MatchString(stderr), stderr)
			}
		}
	}
}

// What is wrong for one of several worlds is noticed before any is measured.
func TestBenchChecksAllWorldsFirst(t *testing.T) {
	for _, command := range []string{"bench", "tune", "bench-peers"} {
		args := []string{command, "-n", "2,1", "--max", "8", "--budget", "1ms"}
		if command == "bench-peers" {
			args = append(args, "--against", "shm", "--min", "16")
		} else {
			args = append(args, "--memory", "host", "--root", "1")
		}
		stdout, stderr, code := shunt(t, args...)
		require.Equal(t, exitUsage, code, stderr)
		require.Empty(t, stdout)
	}
}

// A wrong result is noticed: one element of one rank, once.
func TestBenchNoticesWrongResults(t *testing.T) {
	t.Setenv(failpoint.Variable, "bench.corrupt[1]=corrupt@2")
	stdout, _, code := shunt(t, "bench", "-n", "2", "--max", "64", "--factor", "8", "--budget", "1ms", "--collective",
		"all_gather,broadcast")
	require.Equal(t, exitWrong, code)
	require.Contains(t, stdout, "# #wrong over all rows : 1 FAILED\n")
}

// A run in which no transport serves anything has measured nothing, and says so; one row is enough.
func TestBenchThatMeasuresNothing(t *testing.T) {
	c := &cobra.Command{}
	c.SetOut(io.Discard)
	run := benchRun{command: c, results: []benchResult{{Rows: []bench.Row{{Skipped: "no windows"}}}, {}}}
	var exit *exitError
	require.ErrorAs(t, run.end(), &exit)
	require.Equal(t, exitWrong, exit.code)
	require.ErrorContains(t, exit.err, "nothing was measured")
	run.results[1].Rows = []bench.Row{{Skipped: "no windows"}, {}}
	require.NoError(t, run.end())
}

// A ratio that is asked for and that nothing was measured of fails as one that is too low does.
func TestBenchPeersRequires(t *testing.T) {
	c := &cobra.Command{}
	c.SetOut(io.Discard)
	for atLeast, ok := range map[float64]bool{0: true, 1: false, 3: false} {
		for _, us := range []map[string]float64{{"shm": 1, "openmpi": 2}, {"shm": 1}} {
			err := reportPeers(c, []bench.Comparison{{World: 2, Collective: "all_reduce", Bytes: 8, Microseconds: us}}, "shm",
				[]string{"openmpi"}, "", atLeast)
			require.Equal(t, ok || atLeast == 1 && len(us) == 2, err == nil, "%g %v: %v", atLeast, us, err)
		}
	}
}

// Ranks that end before they have measured everything are a failure, also where they end as if all were well.
func TestBenchWhoseRanksEndEarly(t *testing.T) {
	for _, json := range []string{"--json=false", "--json"} {
		_, stderr, code := shunt(t, "bench", "-n", "1", "--under", "true", "--collective", "broadcast", json)
		require.Equal(t, exitFailure, code)
		require.Equal(t, "shunt: bench: rank 0 ended without an error, with nothing measured of broadcast\n", stderr)
	}
}

// Where collectives are apart, one that fails costs its own rows only.
func TestBenchApart(t *testing.T) {
	// results that are checked: four of all_reduce, two of sendrecv
	t.Setenv(failpoint.Variable, "bench.corrupt[1]=exit@3")
	saved := filepath.Join(t.TempDir(), "saved.json")
	stdout, stderr, code := shunt(t, "bench", "-n", "2", "--min", "8", "--max", "8", "--budget", "1ms", "--collective",
		"all_reduce,sendrecv,barrier", "--apart", "--save", saved)
	require.NotZero(t, code)
	require.Contains(t, stdout, "# all_reduce FAILED: ")
	require.Contains(t, stdout, "# sendrecv\n            8             2")
	require.Contains(t, stdout, "# barrier\n")
	require.Contains(t, stdout, "# FAILED: all_reduce\n")
	require.Contains(t, stderr, "all_reduce, 2 ranks: ")
	require.Contains(t, stderr, "rank 1 (pid ")
	text, err := os.ReadFile(saved)
	require.NoError(t, err)
	var results []benchResult
	require.NoError(t, json.Unmarshal(text, &results))
	require.Len(t, results[0].Failures, 1)
	require.Equal(t, "all_reduce", results[0].Failures[0].Collective)
	require.Len(t, results[0].Rows, 2)
	if _, err := exec.LookPath("python3"); err == nil { // the report reads the same fields
		page, err := builttest.Command("python3", "../../scripts/device-report.py", saved).CombinedOutput()
		require.NoError(t, err, string(page))
		require.Contains(t, string(page), "**all_reduce on 2 GPUs ended with an error:**")
		require.Regexp(t, `### sendrecv, 2 GPUs, eager\n\n.*\n.*\n\| 8 B \|  \|  \| [0-9.]+ \| [0-9.]+ \|  \| [0-9]+ \| shm/`,
			string(page))
	}

	t.Setenv(failpoint.Variable, "")
	stdout, stderr, code = shunt(t, "bench", "-n", "2", "--max", "64M", "--collective", "all_reduce", "--apart", "--limit",
		"1ms")
	require.NotZero(t, code)
	require.Contains(t, stdout+stderr, "not done after 1ms")
}

// What was measured is in the file while the rest is, and after an interrupt.
func TestBenchSavesInBetween(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "saved.json")
	c := exec.Command(os.Args[0], "bench", "-n", "2", "--memory", "host", "--min", "8", "--max", "8", "--iters", "3",
		"--collective", "all_reduce,all_gather,reduce_scatter,all_to_all", "--save", saved)
	c.Env = append(os.Environ(), failpoint.Variable+"=bench.corrupt[1]=delay(1h)@13") // four results of each that are checked
	require.NoError(t, c.Start())
	defer func() { _ = c.Process.Kill() }() // unless it has ended
	read := func() (rows []string) {
		var results []benchResult
		text, err := os.ReadFile(saved)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &results))
		for _, row := range results[0].Rows {
			rows = append(rows, row.Collective)
		}
		require.Positive(t, results[0].Seconds)
		return rows
	}
	require.Eventually(t, func() bool { _, err := os.Stat(saved); return err == nil }, 2*time.Minute, 10*time.Millisecond)
	require.Equal(t, []string{"all_reduce"}, read())
	require.NoError(t, c.Process.Signal(syscall.SIGINT))
	require.Error(t, c.Wait())
	require.Subset(t, read(), []string{"all_reduce", "all_gather"})
}

// Where results cannot be printed or saved, nothing more is measured.
func TestBenchEndsWhereResultsGetLost(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, full.Close()) }()
	t.Setenv(failpoint.Variable, "bench.corrupt[1]=delay(1h)@9")
	args := []string{"bench", "-n", "2", "--memory", "host", "--min", "8", "--max", "8", "--iters", "3", "--collective",
		"all_reduce,all_gather,reduce_scatter"}
	var stderr bytes.Buffer
	require.Equal(t, exitFailure, run(args, full, &stderr))
	require.Contains(t, stderr.String(), "shunt: standard output: write /dev/full: no space left on device\n")
	require.Equal(t, 1, strings.Count(stderr.String(), "no space left"), stderr.String())
}

// A reader that has opened the previous file reads all of it: nothing is written into it, so that a full disk costs
// nothing.
func TestOutputFilesAreReplacedWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, line := range []string{
		"bench -n 1 --max 64 --budget 1ms --collective all_reduce,broadcast --save ",
		"conformance --short -n 1 --filter barrier --junit ",
		"conformance --short -n 1 --filter barrier --json-file ",
		"topo --svg ",
	} {
		require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
		old, err := os.Open(path)
		require.NoError(t, err)
		_, stderr, code := shunt(t, strings.Fields(line+path)...)
		require.Zero(t, code, stderr)
		text, err := io.ReadAll(old)
		require.NoError(t, err)
		require.Equal(t, "old", string(text), line)
		require.NoError(t, old.Close())
		text, err = os.ReadFile(path)
		require.NoError(t, err)
		require.Greater(t, len(text), 100, line)
	}
}

// Rank 0 alone runs under another command.
func TestBenchUnder(t *testing.T) {
	stdout, stderr, code := shunt(t, "bench", "-n", "2", "--min", "64", "--max", "64", "--budget", "1ms", "--collective",
		"all_reduce", "--under", "env FROM='a shell' sh -c 'echo under $SHUNT_RANK $FROM >&2; exec \"$@\"' x")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "shm/")
	require.Equal(t, 1, strings.Count(stderr, "under"), stderr)
	require.Contains(t, stderr, "[0] under 0 a shell\n")
}

// A rank that dies ends the benchmark with a report of which rank and how.
func TestBenchReportsDeath(t *testing.T) {
	t.Setenv(failpoint.Variable, "bench.corrupt[1]=exit@3")
	_, stderr, code := shunt(t, "bench", "-n", "2", "--max", "1K", "--budget", "1ms")
	require.Equal(t, exitFailure, code)
	require.Contains(t, stderr, "shunt bench: rank 1 (pid ")
	require.Contains(t, stderr, "was ended by signal 9 (killed)")
	require.Contains(t, stderr, "rank 1 (pid", "the survivor names the dead rank")
}

func TestBenchPeersOfCarriers(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data.json")
	stdout, stderr, code := shunt(t, "bench-peers", "-n", "2", "--against", "shm,builtin:shm,shm", "--collective",
		"all_reduce", "--max", "64", "--budget", "1ms", "--rounds", "1", "--write", data)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "| bytes | all_reduce |\n")
	require.Regexp(t, `\| geometric mean \| \*\*\d+\.\d\d\*\* \|\n`, stdout)
	require.Contains(t, stdout, "builtin:shm (2) over builtin:shm: ratio of times")
	results, err := peertable.Read(data)
	require.NoError(t, err)
	require.NotEmpty(t, results.Machine)
	require.Len(t, results.Rows, 3)
	others := []string{"shm", "builtin:shm (2)", "shm (2)"}
	require.Equal(t, others, results.Against)
	for _, row := range results.Rows { // each with times of its own, also those that are one transport
		require.Len(t, row.Microseconds, 4)
		require.ElementsMatch(t, others, slices.Collect(maps.Keys(row.Ratio)))
	}
	_, stderr, code = shunt(t, "bench-peers", "-n", "2", "--against", "builtin:shm", "--collective", "all_reduce", "--min",
		"8", "--max", "8", "--budget", "1ms", "--rounds", "1", "--require", "1000")
	require.Equal(t, exitWrong, code)
	require.Contains(t, stderr, "1 ratios are below 1000")
}

func TestParseMPI(t *testing.T) {
	times, err := parseMPI([]byte("all_reduce 8 20000 0.37 0\nall_reduce 64 10 1.5 0\n"))
	require.NoError(t, err)
	require.Equal(t, map[int64]float64{8: 0.37, 64: 1.5}, times)
	_, err = parseMPI([]byte("all_reduce 8 20000 0.37 2\n"))
	require.ErrorContains(t, err, "2 elements of all_reduce are wrong at 8 bytes")
	_, err = parseMPI([]byte("Open MPI says hello\n"))
	require.ErrorContains(t, err, "mpirun printed")
}
