package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/builttest"
)

// TestPreloadTellsWhetherItTook: nothing is printed for a job whose processes load the library and make communicators;
// for others the launcher prints why they have not run over Shunt.
func TestPreloadTellsWhetherItTook(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no compiler: cc is not installed")
	}
	folder := t.TempDir()
	_, err := preloadBeside(folder)
	require.ErrorContains(t, err, "there is no libnccl.so.2")
	library := filepath.Join(folder, "nccl", "libnccl.so.2")
	text, err := builttest.Command("../../capi/nccl/build.sh", library).CombinedOutput()
	require.NoError(t, err, string(text))

	source := filepath.Join(folder, "program.c")
	require.NoError(t, os.WriteFile(source, []byte(`#include <dlfcn.h>
#include <stdlib.h>
struct id { char bytes[128]; };
int main(int argc, char **argv) {
  (void)argv;
  typedef int initializer(void **, int, struct id, int);
  initializer *init = (initializer *)dlsym(RTLD_DEFAULT, "ncclCommInitRank");
  struct id id = {"of no rank"};
  void *comm;
  if (argc > 1) init(&comm, 1, id, 0);
  return 0;
}
`), 0o600))
	program := filepath.Join(folder, "program")
	text, err = exec.Command("cc", "-D_GNU_SOURCE", "-o", program, source, "-ldl").CombinedOutput()
	require.NoError(t, err, string(text))

	for name, c := range map[string]struct {
		args []string
		env  []string
		want string
	}{
		"used":   {[]string{program, "init"}, nil, ""},
		"unused": {[]string{program}, nil, "the program (program) made no NCCL communicator"},
		"dropped": {[]string{"/bin/true"}, []string{"LD_PRELOAD="},
			"no process loaded " + library + ": the program is static or setuid, or it clears LD_PRELOAD"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := preloadBeside(folder)
			require.NoError(t, err)
			defer p.remove()
			cmd := exec.Command(c.args[0], c.args[1:]...)
			cmd.Env = append(append(append(os.Environ(), "SHUNT_LIBRARY=/nonexistent"), p.env(os.Environ())...), c.env...)
			text, err := cmd.CombinedOutput()
			require.NoError(t, err, string(text))
			require.Equal(t, c.want, p.verdict())
		})
	}
	t.Run("no place for reports", func(t *testing.T) {
		p := preload{library: library, dir: "/proc/self/task"} // as a full file system: it takes no file
		require.Contains(t, p.verdict(), "it is not known whether a program used "+library+": its report could not be ")
	})
	t.Run("beside others", func(t *testing.T) { preloadBesideOthers(t, folder, library) })
	t.Run("in folders with spaces", func(t *testing.T) { preloadFromSpaces(t, library, program) })
	t.Run("over several hosts", func(t *testing.T) { preloadOverHosts(t, folder, program) })
	p := preload{library: library}
	for _, c := range [][]string{
		{library},
		{library, "LD_PRELOAD="},
		{library + ":a.so", "LD_PRELOAD=a.so", "A=b"},
		{library + ":b.so:c.so", "LD_PRELOAD=a.so", "LD_PRELOAD=b.so:c.so"},
		{library, "LD_PRELOAD=a.so", "LD_PRELOAD="},
	} {
		require.Equal(t, []string{"LD_PRELOAD=" + c[0], "SHUNT_NCCL_REPORT_DIR="}, p.env(c[1:]), c)
	}
}

// preloadBesideOthers runs a program on this machine that is to load another library, too.
func preloadBesideOthers(t *testing.T, folder, library string) {
	out, err := exec.Command(commandIn(t, folder), "run", "-n", "1", "--nccl", "--env", "LD_PRELOAD=other.so",
		"--", "sh", "-c", "echo $LD_PRELOAD").Output()
	require.NoError(t, err)
	require.Equal(t, library+":other.so\n", string(out))

	out, err = exec.Command(filepath.Join(folder, "shunt"), "run", "--nccl", "/nonexistent").CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 1, strings.Count(string(out), "\n"), "one reason, that of the program: %s", out)
}

// preloadFromSpaces runs a program over a library, and with the directory of the reports, in folders that LD_PRELOAD
// cannot name.
func preloadFromSpaces(t *testing.T, library, program string) {
	for _, name := range []string{"a b", "a:b", " a"} {
		folder := filepath.Join(t.TempDir(), name)
		copied := filepath.Join(folder, "nccl", filepath.Base(library))
		require.NoError(t, os.MkdirAll(filepath.Dir(copied), 0o700))
		require.NoError(t, os.Link(library, copied))
		p, err := preloadBeside(folder)
		require.NoError(t, err)
		cmd := exec.Command(program, "init")
		cmd.Env = append(append(os.Environ(), "SHUNT_LIBRARY=/nonexistent"), p.env(os.Environ())...)
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, string(text))
		require.Empty(t, string(text), "the loader says what it cannot preload")
		require.Empty(t, p.verdict())
		require.NotContains(t, p.path(), name)
		p.remove()
		require.NoDirExists(t, p.dir)

		t.Setenv("TMPDIR", folder)
		_, err = preloadBeside(folder)
		require.ErrorContains(t, err, "LD_PRELOAD cannot name "+copied)
		require.ErrorContains(t, err, "set TMPDIR to a folder without them")
		left, err := os.ReadDir(folder)
		require.NoError(t, err)
		require.Len(t, left, 1)
		require.NoError(t, os.Unsetenv("TMPDIR"))
	}
}

// commandIn copies the command to a folder.
func commandIn(t *testing.T, folder string) string {
	self, err := os.Executable()
	require.NoError(t, err)
	text, err := os.ReadFile(self)
	require.NoError(t, err)
	command := filepath.Join(folder, "shunt")
	require.NoError(t, os.WriteFile(command, text, 0o700)) //nolint:gosec // a program
	return command
}

// preloadOverHosts runs a program on two machines, whose command lies in a folder with the library, or without one.
func preloadOverHosts(t *testing.T, folder, program string) {
	self, err := os.Executable()
	require.NoError(t, err)
	command, without := commandIn(t, folder), filepath.Join(t.TempDir(), "shunt")
	require.NoError(t, os.Symlink(self, without)) // the command is the one that it leads to
	flags, _ := machines(t, "node0\nnode1\n")
	run := func(args ...string) (stdout, stderr string, code int) {
		cmd := exec.Command(command, append(append(flags, "--nccl", "--env", "SHUNT_LIBRARY=/nonexistent"), args...)...)
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run() // the status says it
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	stdout, stderr, code := run(program, "init")
	require.Zero(t, code, stderr)
	require.Empty(t, stdout+stderr)
	_, stderr, code = run("sh", "-c", "exec "+program)
	require.Zero(t, code, stderr)
	require.Equal(t, "shunt run --nccl: on node0, node1: the program (program) made no NCCL communicator\n", stderr)
	_, stderr, code = run("sh", "-c", `[ $SHUNT_RANK = 1 ] || exec `+program+" init; exec "+program)
	require.Zero(t, code, stderr)
	require.Equal(t, "shunt run --nccl: on node1: the program (program) made no NCCL communicator\n", stderr)
	used := filepath.Join(t.TempDir(), "used") // the launcher of one dies when the program of the other has used the library
	_, stderr, code = run("sh", "-c", "if [ $SHUNT_RANK = 0 ]; then "+program+" init; touch "+used+"; "+
		"else until [ -e "+used+" ]; do sleep 0.01; done; kill -9 $PPID; fi")
	require.Equal(t, 137, code, stderr)
	require.Contains(t, stderr, "shunt run --nccl: on node1: it is not known whether the library was used")

	shell, err := os.ReadFile(flags[4])
	require.NoError(t, err)
	other := strings.Replace(string(shell), "shift\n", "shift\n[ $host = node1 ] && set -- "+without+" agent\n", 1)
	require.NoError(t, os.WriteFile(flags[4], []byte(other), 0o700)) //nolint:gosec // a program
	_, stderr, code = run("sleep", "60")
	require.Equal(t, exitFailure, code, stderr)
	require.Contains(t, stderr, "shunt run on node1: --nccl: there is no libnccl.so.2 in ")
}
