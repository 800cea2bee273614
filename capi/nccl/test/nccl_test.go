package test

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/report"
	"github.com/shunt-ccl/shunt/internal/builttest"
)

var built = builttest.Library{Build: "../../build.sh", More: func(dir string) error {
	cmd := builttest.Command("../build.sh", filepath.Join(dir, "libnccl.so.2"))
	if sanitized {
		cmd.Env = append(os.Environ(), "CFLAGS="+sanitizers)
	}
	return builttest.Output(cmd)
}}

func TestMain(m *testing.M) { built.Main(m) }

// sanitized, by `make nccl-sanitize`, builds everything with the sanitizers of addresses and undefined behaviour.
var sanitized = os.Getenv("SHUNT_NCCL_SANITIZE") != ""

// build returns a directory with libnccl.so.2 and libshunt.so.
func build(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no compiler: cc is not installed")
	}
	dir, err := built.Dir()
	require.NoError(t, err)
	return dir
}

const sanitizers = "-fsanitize=address,undefined -fno-sanitize-recover=all -Wl,-z,undefs"

type failure struct{ text string }

func (f failure) Error() string { return f.text }

// compile compiles sources of programs/.
func compile(t *testing.T, name string, flags ...string) string {
	t.Helper()
	dir := build(t)
	path := filepath.Join(dir, name)
	args := []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-I..",
		"-Iprograms", "-o", path}
	if sanitized {
		args = append(args, strings.Fields(sanitizers)...)
	}
	require.NoError(t, builttest.Output(builttest.Command("cc", append(args, flags...)...)))
	return path
}

// program compiles a program against the library.
func program(t *testing.T, name string) string {
	t.Helper()
	dir := build(t)
	return compile(t, name, "programs/"+name+".c", filepath.Join(dir, "libnccl.so.2"), "-Wl,-rpath,"+dir, "-ldl", "-lm",
		"-lpthread")
}

// run runs a program with at most a minute, on host memory.
func run(t *testing.T, env []string, path string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	// A runtime of Go's own memory is never given back, and programs ask for more than there is.
	cmd.Env = append(os.Environ(), "SHUNT_NCCL_MEMORY=host", "SHUNT_LIBRARY=",
		"ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1")
	cmd.Env = append(cmd.Env, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), failure{filepath.Base(path) + " " + strings.Join(args, " ") + ": " + err.Error() + "\n" +
			stderr.String()}
	}
	return stdout.String(), nil
}

// world runs a program once with all ranks in one thread, and once with a process for each.
func world(t *testing.T, path string, size int, env ...string) {
	t.Helper()
	n := strconv.Itoa(size)
	t.Run("one thread of "+n, func(t *testing.T) {
		_, err := run(t, env, path, "thread", n)
		require.NoError(t, err)
	})
	t.Run(n+" processes", func(t *testing.T) { processes(t, path, size, func(int) []string { return env }) })
}

// processes runs a program with a process for each rank, in the environment that env returns for it.
func processes(t *testing.T, path string, size int, env func(rank int) []string) {
	t.Helper()
	meeting := filepath.Join(t.TempDir(), "id")
	errs := make([]error, size)
	var all sync.WaitGroup
	for rank := range size {
		all.Go(func() {
			_, errs[rank] = run(t, env(rank), path, "process", strconv.Itoa(size), strconv.Itoa(rank), meeting)
		})
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// named are the functions of symbols.json.
func named(t *testing.T) []string {
	t.Helper()
	var table struct{ Functions []struct{ Name string } }
	text, err := os.ReadFile("../symbols.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &table))
	require.Greater(t, len(table.Functions), 90)
	var names []string
	for _, f := range table.Functions {
		names = append(names, f.Name)
	}
	return names
}

func TestExportsWhatNCCLExports(t *testing.T) {
	file, err := elf.Open(filepath.Join(build(t), "libnccl.so.2"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	soname, err := file.DynString(elf.DT_SONAME)
	require.NoError(t, err)
	require.Equal(t, []string{"libnccl.so.2"}, soname)
	symbols, err := file.DynamicSymbols()
	require.NoError(t, err)
	var weak, strong, want, wantStrong []string
	for _, s := range symbols {
		switch {
		case s.Section == elf.SHN_UNDEF:
		case elf.ST_BIND(s.Info) == elf.STB_WEAK:
			weak = append(weak, s.Name)
		default:
			strong = append(strong, s.Name)
		}
	}
	want = named(t)
	for _, name := range want {
		wantStrong = append(wantStrong, "p"+name)
	}
	slices.Sort(weak)
	slices.Sort(strong)
	require.Equal(t, want, weak)
	require.Equal(t, append(wantStrong, "shunt_nccl_compatible"), strong)
	needed, err := file.ImportedLibraries()
	require.NoError(t, err)
	if !sanitized {
		require.Subset(t, []string{"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2",
			"ld-linux-aarch64.so.1"}, needed, "a program with no GPU, and a child of fork, must be able to load it")
	}
}

func TestEverySymbolReachesTheRealLibrary(t *testing.T) {
	every := compile(t, "every", "programs/every.c", "programs/every_gen.c", "-ldl")
	fake, older := stand(t, "fake.so"), stand(t, "older.so", "-DOLDER")
	for mode, library := range map[string]string{"all": fake, "loaded": fake, "older": older,
		"absent": "/nonexistent/libnccl.so.2"} {
		t.Run(mode, func(t *testing.T) {
			out, err := run(t, nil, every, filepath.Join(build(t), "libnccl.so.2"), library, mode)
			require.NoError(t, err, out)
			require.Contains(t, out, " 0 failures")
		})
	}
}

// stand compiles the library that stands for the real one.
func stand(t *testing.T, name string, flags ...string) string {
	t.Helper()
	return compile(t, name, append([]string{"programs/fake.c", "programs/fake_gen.c", "-fPIC", "-shared",
		"-Wl,-soname,libnccl.so.2", "-ldl"}, flags...)...)
}

// TestRecordsOfTheRealLibrary: what `shunt records` reads of a rank that the real library serves says which call it made
// last, and why its communicator ended.
func TestRecordsOfTheRealLibrary(t *testing.T) {
	binary, fake := program(t, "records"), stand(t, "fake.so")
	var whole report.Report
	var files []os.DirEntry
	heads := func(how string) map[string]report.Head {
		dir := filepath.Join(t.TempDir(), "made for it")
		_, err := run(t, []string{"SHUNT_NCCL_FORWARD=all", "SHUNT_NCCL_LIBRARY=" + fake, "SHUNT_RECORDS_DIR=" + dir}, binary,
			how)
		require.NoError(t, err)
		files, err = os.ReadDir(dir)
		require.NoError(t, err)
		found := map[string]report.Head{}
		for _, f := range files {
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			require.NoError(t, err)
			whole = report.Report{}
			require.NoError(t, json.Unmarshal(text, &whole), "%s", text)
			require.True(t, utf8.Valid(text), "%s", text)
			head, err := report.ReadHead(bytes.NewReader(text))
			require.NoError(t, err)
			require.Equal(t, head.FileName(), f.Name())
			require.Equal(t, "nccl-", head.Communicator[:5])
			if how != "long" {
				require.Equal(t, report.Entry{Number: 1, Collective: "all_reduce", DType: "float32", Op: "sum", Count: 300,
					Root: -1, Begin: whole.Operations[0].Begin, End: whole.Operations[0].End, State: report.Enqueued},
					whole.Operations[0])
			}
			found[strconv.Itoa(head.Rank)] = head
		}
		return found
	}
	aborted := heads("abort")
	require.Len(t, aborted, 2)
	require.Equal(t, aborted["0"].Communicator, aborted["1"].Communicator)
	require.Equal(t, &report.Call{Number: 2, Collective: "broadcast", State: report.Enqueued}, aborted["0"].Last)
	require.Equal(t, &report.Call{Number: 1, Collective: "send", State: report.Enqueued}, aborted["1"].Last)
	require.Equal(t, "rank 0 called ncclCommAbort", aborted["0"].Failure)
	failed := heads("fail")
	require.Len(t, failed, 1)
	require.Equal(t, &report.Call{Number: 2, Collective: "reduce", State: report.Called}, failed["1"].Last)
	require.Equal(t, "peer_died: fake", failed["1"].Code+": "+failed["1"].Failure)
	for text, want := range map[string]string{
		"größer: \"\\\t€\u007f\U0010ffff":  "größer: \"\\\t€\u007f\U0010ffff",
		"cut: \xe2\x82":                    "cut: \ufffd\ufffd",
		"\x85\x85\xc0\x80\xc1\xbf\xff":     strings.Repeat("\ufffd", 7), // no first byte, or one that is too long
		"\xe0\x9f\xbf\xed\xa0\x80":         strings.Repeat("\ufffd", 6), // too long, and a half of a pair
		"\xf0\x8f\xbf\xbf\xf4\x90\x80\x80": strings.Repeat("\ufffd", 8), // too long, and too large
		"\xf8\x88\x80\x80\x80 \xc3\xa4":    strings.Repeat("\ufffd", 5) + " ä",
	} {
		require.Equal(t, want, heads(text)["1"].Failure, "%q", text)
	}
	for rank, head := range heads("inside") { // of ranks that abort
		require.Equal(t, "broadcast called", head.Last.Collective+" "+head.Last.State)
		require.Equal(t, "aborted: rank "+rank+" called ncclCommAbort", head.Code+": "+head.Failure)
	}
	newest := heads("goes_on")["1"]
	require.Equal(t, &report.Call{Number: 3, Collective: "all_gather", State: report.Enqueued}, newest.Last)
	require.Equal(t, "rank 1 called ncclCommAbort, after a failure: fake", newest.Failure)
	require.Len(t, heads("all"), 2)
	require.Len(t, files, 4, "communicators of two calls share files")
	require.Len(t, heads("long"), 1)
	require.Len(t, whole.Operations, 256)
	for i, o := range whole.Operations {
		require.Equal(t, uint64(1001-255+i), o.Number)
		require.EqualValues(t, 999-255+i, o.Count)
		require.True(t, i == 0 || o.Begin >= whole.Operations[i-1].Begin, "%v", whole.Operations)
	}
}

// TestChildrenOfTheRealLibrary: a program gets what NCCL makes of a communicator at the end of a group, or later.
func TestChildrenOfTheRealLibrary(t *testing.T) {
	binary, fake := program(t, "children"), stand(t, "fake.so")
	dir := t.TempDir()
	_, err := run(t, []string{"SHUNT_NCCL_FORWARD=all", "SHUNT_NCCL_LIBRARY=" + fake, "SHUNT_RECORDS_DIR=" + dir}, binary)
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	// The stand-in gives no ranks, so that both write one file if they name the split alike.
	require.Len(t, files, 1, "a rank sat another split out before")
	_, err = run(t, []string{"SHUNT_NCCL_FORWARD=all", "SHUNT_NCCL_LIBRARY=" + fake}, binary, "aborted parent")
	require.NoError(t, err)
}

func TestLifecycle(t *testing.T) { world(t, program(t, "lifecycle"), 3) }

func TestGroups(t *testing.T) {
	binary, fake := program(t, "groups"), stand(t, "fake.so")
	world(t, binary, 3)
	t.Run("beside the real library", func(t *testing.T) {
		world(t, binary, 3, "SHUNT_NCCL_LIBRARY="+fake, "SHUNT_NCCL_FORWARD=reduce_scatter")
	})
}

// TestAbortOfWhatIsBeingMade: an abort after the making of a communicator, before this library has it, is not missed.
func TestAbortOfWhatIsBeingMade(t *testing.T) {
	dir := build(t)
	library := compile(t, "late.so", "programs/late.c", "-I../../include", "-I../../../plugin", "-fPIC", "-shared",
		filepath.Join(dir, "libshunt.so.1"), "-Wl,-rpath,"+dir, "-ldl")
	binary := compile(t, "abort", "programs/abort.c", filepath.Join(dir, "libnccl.so.2"), "-Wl,-rpath,"+dir, "-rdynamic",
		"-ldl", "-lpthread")
	for _, how := range []string{"init", "split"} {
		_, err := run(t, []string{"SHUNT_LIBRARY=" + library}, binary, how)
		require.NoError(t, err)
	}
}

// TestAbortOfWhatWaits: making a communicator waits for ranks that do not come, until the program aborts it or its
// parent.
func TestAbortOfWhatWaits(t *testing.T) {
	binary := program(t, "waits")
	for _, how := range []string{"init", "split", "shrink", "shrink aborts", "parent", "group", "destroy", "open group",
		"calls"} {
		t.Run(how, func(t *testing.T) {
			_, err := run(t, nil, binary, how)
			require.NoError(t, err)
		})
	}
}

func TestMatrix(t *testing.T) { world(t, program(t, "matrix"), 2, "MATRIX_LARGEST=3") }

func TestBadInput(t *testing.T) {
	binary := program(t, "bad_input")
	for _, args := range [][]string{nil, {"fork"}} {
		_, err := run(t, nil, binary, args...)
		require.NoError(t, err)
	}
}

// TestCommIDIsNotUsed: a program whose ranks rely on NCCL_COMM_ID would wait for each other until the timeout.
func TestCommIDIsNotUsed(t *testing.T) {
	shell := []string{"-c", `exec "$0" 2>&1`, program(t, "bad_input")}
	for value, times := range map[string]int{"127.0.0.1:5555": 1, "": 0} {
		out, err := run(t, []string{"NCCL_COMM_ID=" + value, "SHUNT_LOG=warn"}, "/bin/sh", shell...)
		require.NoError(t, err, out)
		require.Equal(t, times, strings.Count(out, `level=WARN msg="nccl: NCCL_COMM_ID=127.0.0.1:5555 is not used`), out)
	}
}
