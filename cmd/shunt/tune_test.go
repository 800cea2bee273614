package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/bench"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/internal/failpoint"
)

// The algorithm that is slow loses, in the tables, in the file and with ranks that
// have the file; SHUNT_ALGO and an older file do not matter.
func TestTune(t *testing.T) {
	path := filepath.Join(t.TempDir(), "the tuning.json")
	// The delay slows the first measurement, which is the one of 8 bytes.
	t.Setenv(failpoint.Variable, "bench.first_algorithm=delay(20ms)")
	t.Setenv("SHUNT_ALGO", "all_reduce=shm/two_shot")
	t.Setenv("SHUNT_TUNING_FILE", "/does/not/exist")
	stdout, stderr, code := shunt(t, "tune", "-n", "2,3", "--memory", "host", "--max", "512", "--factor", "64", "--iters",
		"3", "--collective", "all_reduce", "-o", path)
	require.Zero(t, code, stderr)
	require.Contains(t, stderr, "shunt tune: 2 ranks, 1 collectives, about ")
	require.Regexp(t, `# all_reduce: .* 3 ranks, host memory, float32 sum\n# +buffer +message +shm/one_shot .* best +untuned +loss\n +8 +8 +\d{5} `, stdout)
	require.Regexp(t, `  all_reduce, 8( to 512)?: shm/\S+ instead of shm/one_shot, \d[^,]* less time\n`, stdout)
	require.True(t, strings.HasSuffix(stdout, "\nexport SHUNT_TUNING_FILE='"+path+"'\n"), stdout)

	tuning, err := selector.ReadTuning(path)
	require.NoError(t, err)
	require.Contains(t, tuning.Comment, "shunt tune --collective=all_reduce --factor=64 --iters=3")
	worlds := map[int]int{}
	for _, e := range tuning.Entries {
		worlds[e.World]++
		require.Equal(t, "host", e.Memory)
		require.Equal(t, 1, e.Hosts)
		require.Empty(t, e.DType+e.Op+string(e.Mode))
		require.Regexp(t, "^host(-crowded)?$", e.Topology)
		require.Equal(t, "all_reduce", e.Collective)
	}
	require.Len(t, worlds, 2)

	t.Setenv("SHUNT_ALGO", "")
	t.Setenv("SHUNT_TUNING_FILE", path)
	stdout, stderr, code = shunt(t, "explain", "all_reduce", "-n", "3", "--memory", "host", "--bytes", "8", "--json")
	require.Zero(t, code, stderr)
	var explanations []explained
	require.NoError(t, json.Unmarshal([]byte(stdout), &explanations))
	require.NotEqual(t, "shm/one_shot", explanations[0].Chosen)
	require.Equal(t, "measured", explanations[0].Source)
}

func TestTuneJSON(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "t.json")
	stdout, stderr, code := shunt(t, "tune", "--json", "-n", "2", "--memory", "host", "--min", "64", "--max", "64",
		"--iters", "9", "--dtype", "bfloat16", "--op", "max",
		"--collective", "all_reduce,sendrecv,all_to_all_v,barrier", "-o", path)
	require.Zero(t, code, stderr)
	var report tuneReport
	require.NoError(t, json.Unmarshal([]byte(stdout), &report))
	require.Equal(t, path, report.File)
	require.Len(t, report.Worlds, 1)
	require.Len(t, report.Worlds[0].Rows, 4)
	for _, row := range report.Worlds[0].Rows {
		require.Greater(t, len(row.Times), 1)
		require.Positive(t, row.Times[row.Plain.Best])
		require.NotEmpty(t, row.Plain.Tuned)
		require.LessOrEqual(t, row.Times[row.Plain.Tuned]-row.Times[row.Plain.Best], 0.0015,
			"%s: of one size the best is taken, to a nanosecond", row.Collective)
	}
	file, err := selector.ReadTuning(path)
	require.NoError(t, err)
	require.Equal(t, report.Tuning.Entries, file.Entries)
	require.True(t, slices.ContainsFunc(file.Entries, func(e selector.Entry) bool { return e.Collective == "send" }),
		"and of recv")
	for _, e := range file.Entries {
		if e.Collective == "all_reduce" {
			require.Equal(t, "half max", e.DType+" "+e.Op)
		} else {
			require.Empty(t, e.DType+e.Op, "bytes are bytes")
		}
	}
}

// A link to the file stays, and a FIFO gets the text.
func TestTuneOutput(t *testing.T) {
	dir := t.TempDir()
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	require.NoError(t, os.Symlink("target", link))
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	read := make(chan error, 1)
	go func() {
		text, err := os.ReadFile(fifo)
		if err == nil {
			_, err = selector.ParseTuning(text)
		}
		read <- err
	}()
	for _, path := range []string{link, fifo} {
		_, stderr, code := shunt(t, "tune", "-n", "2", "--memory", "host", "--min", "64", "--max", "64", "--iters", "3",
			"--collective", "all_reduce", "-o", path)
		require.Zero(t, code, stderr)
	}
	require.NoError(t, <-read)
	_, err := selector.ReadTuning(filepath.Join(dir, "target"))
	require.NoError(t, err)
	info, err := os.Lstat(fifo)
	require.NoError(t, err)
	require.Equal(t, os.ModeNamedPipe, info.Mode().Type())
	info, err = os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, info.Mode().Type())
}

// What another file has that the new one will not have is said before it is measured.
func TestTuneSaysWhatItReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.json")
	for _, test := range []struct{ ranks, want string }{
		{"2", ""},
		{"2", ""},
		{"3", " will be replaced, which has 4 curves of 2 ranks (host); -o names another file"},
		{"2,3", ""},
		{"4", " will be replaced, which has 8 curves of 2 ranks (host), 3 ranks (host); "},
	} {
		_, stderr, code := shunt(t, "tune", "-n", test.ranks, "--memory", "host", "--min", "64", "--max", "64", "--iters",
			"3", "--collective", "all_reduce", "-o", path)
		require.Zero(t, code, stderr)
		if test.want == "" {
			require.NotContains(t, stderr, "warning")
		} else {
			first, _, _ := strings.Cut(stderr, "\n")
			require.Contains(t, first, "shunt tune: warning: "+path+test.want)
		}
	}
}

// Nothing is written where a result is wrong, or nothing could be measured.
func TestTuneWritesNoBadFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "t.json")
	t.Setenv(failpoint.Variable, "bench.corrupt[1]=corrupt@2")
	args := []string{"tune", "-n", "2", "--memory", "host", "--min", "64", "--max", "64", "--iters", "3", "-o", path,
		"--collective"}
	stdout, stderr, code := shunt(t, append(args, "broadcast")...)
	require.Equal(t, exitWrong, code)
	require.Contains(t, stdout, " wrong ")
	require.Contains(t, stderr, "wrong results of 1 algorithms and sizes: no file is written")
	t.Setenv(failpoint.Variable, "bench.corrupt[1]=exit@2")
	stdout, stderr, code = shunt(t, append(args, "broadcast")...)
	require.Equal(t, exitWrong, code)
	require.Contains(t, stdout, "# broadcast FAILED")
	require.Contains(t, stderr, "broadcast, 2 ranks: ")
	require.Contains(t, stderr, "no file is written")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// Ctrl-C ends it, and leaves an older file as it was and nothing beside it.
func TestTuneInterrupted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "t.json")
	require.NoError(t, os.WriteFile(path, []byte("older"), 0o600))
	c := exec.Command(os.Args[0], "tune", "-n", "2", "--memory", "host", "--max", "64", "--collective",
		"all_reduce,broadcast", "-o", path)
	c.Env = append(os.Environ(), failpoint.Variable+"=bench.first_algorithm=delay(500ms)")
	pipe, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	lines := bufio.NewScanner(pipe)
	require.True(t, lines.Scan())
	require.Contains(t, lines.Text(), "shunt tune: 2 ranks, 2 collectives")
	began := time.Now()
	require.NoError(t, c.Process.Signal(syscall.SIGINT))
	for lines.Scan() { // to the end
	}
	require.Error(t, c.Wait())
	require.Less(t, time.Since(began), 30*time.Second, "not all is measured first")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "older", string(text))
}

func TestShellQuoted(t *testing.T) {
	require.Equal(t, "/a/b-c_1.json", shellQuoted("/a/b-c_1.json"))
	require.Equal(t, `'/a b'\''c'`, shellQuoted("/a b'c"))
}

// What is chosen is measured beside every algorithm, and what it loses is listed; nothing is written. The present
// tuning file counts.
func TestTuneRegret(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	lie := selector.Tuning{Entries: []selector.Entry{{Collective: "all_reduce", Algorithm: "shm/two_shot",
		Points: []selector.Point{{Bytes: 8, Microseconds: 0.001}}}}}
	require.NoError(t, lie.WriteFile("lie.json"))
	t.Setenv("SHUNT_TUNING_FILE", filepath.Join(dir, "lie.json"))
	t.Setenv(failpoint.Variable, "bench.auto=delay(20ms)") // the first measurement of each collective
	args := []string{"tune", "--regret", "-n", "2", "--memory", "host", "--min", "64", "--max", "64", "--iters", "3",
		"--collective", "all_reduce,broadcast"}
	stdout, stderr, code := shunt(t, append(args, "--json")...)
	require.Zero(t, code, stderr)
	var results []tuneResult
	require.NoError(t, json.Unmarshal([]byte(stdout), &results))
	require.Len(t, results, 1)
	require.Len(t, results[0].Regrets, 2)
	for i, r := range results[0].Regrets {
		require.Equal(t, []string{"shm/two_shot", "shm/one_shot"}[i], r.Chosen)
		require.Greater(t, r.Auto, 15e3)
		require.Positive(t, r.BestTime)
		require.InEpsilon(t, r.Auto/r.BestTime-1, r.Loss, 1e-9)
		require.Contains(t, r.Times, bench.Auto)
		require.Contains(t, r.Times, "shm/generic/"+[]string{"put_two_shot", "put_direct"}[i], "every algorithm")
		require.Empty(t, r.Wrong)
	}
	stdout, stderr, code = shunt(t, args...)
	require.Zero(t, code, stderr)
	require.Regexp(t, `(?m)^# regret: 2 ranks, host memory, float32 sum\n# sizes at which .*\n#collective .*\n`+
		`all_reduce +- +64 +64  shm/two_shot +\d{5} .*\nbroadcast .*\n# 2 of 2 sizes, \d of them within noise; `, stdout)

	t.Setenv(failpoint.Variable, "bench.corrupt[1]=corrupt@2")
	_, stderr, code = shunt(t, args...)
	require.Equal(t, exitWrong, code)
	require.Contains(t, stderr, "algorithms and sizes gave wrong results")
	for _, bad := range [][]string{{"-o", "x.json"}, {"--nccl", "x"}, {"--graph"}} {
		_, stderr, code = shunt(t, append(args, bad...)...)
		require.Equal(t, exitUsage, code, stderr)
	}
	_, stderr, code = shunt(t, "tune", "--nccl", "x")
	require.Equal(t, exitUsage, code, stderr)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing beside the file that was there")
}
