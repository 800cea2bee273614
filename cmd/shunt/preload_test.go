package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPreloadTellsWhetherItTook: a job whose processes load the library and make communicators is told nothing; the
// others are told why they have not run over Shunt.
func TestPreloadTellsWhetherItTook(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no compiler: cc is not installed")
	}
	folder := t.TempDir()
	_, err := preloadBeside(folder)
	require.ErrorContains(t, err, "there is no libnccl.so.2")
	library := filepath.Join(folder, "nccl", "libnccl.so.2")
	text, err := exec.Command("../../capi/nccl/build.sh", library).CombinedOutput()
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
			cmd.Env = append(append(append(os.Environ(), "SHUNT_LIBRARY=/nonexistent"), p.env(os.Getenv)...), c.env...)
			text, err := cmd.CombinedOutput()
			require.NoError(t, err, string(text))
			require.Equal(t, c.want, p.verdict())
		})
	}
	p := preload{library: library}
	require.Equal(t, []string{"LD_PRELOAD=" + library + ":a.so", "SHUNT_NCCL_REPORT_DIR="},
		p.env(func(string) string { return "a.so" }))
}
