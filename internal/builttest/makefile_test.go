package builttest_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/builttest"
)

// A tree without git, such as an unpacked archive of the sources: Go keeps no result, as what the sources are is not
// known, and the check of formats fails with git's reason instead of waiting for its input.
func TestMakeWithoutGit(t *testing.T) {
	const sum = "sum-of-test"
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	dir := t.TempDir()
	makefile = append(makefile, "\n"+sum+":\n\t@$(sum) printenv SOURCES_SUM\n"...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Makefile"), makefile, 0o600))
	run := func(program string, arguments ...string) (string, error) {
		command := builttest.Command(program, arguments...)
		command.Dir = dir
		command.Env = append(os.Environ(), "MAKEFLAGS=", "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		input, open, err := os.Pipe() // nothing comes, and it does not end
		require.NoError(t, err)
		defer input.Close()
		defer open.Close()
		command.Stdin = input
		ended, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		defer context.AfterFunc(ended, func() { _ = open.Close() })() // a command that waits goes on
		out, err := command.CombinedOutput()
		require.NoError(t, ended.Err(), "%s waited for its input:\n%s", arguments, out)
		return string(out), err
	}
	sums := func() (first, second string) {
		first, err := run("make", "-s", sum)
		require.NoError(t, err, first)
		require.Regexp(t, `^[0-9a-f]{64}\n$`, first)
		second, err = run("make", "-s", sum)
		require.NoError(t, err, second)
		return first, second
	}
	first, second := sums()
	require.NotEqual(t, first, second)
	out, err := run("make", "-s", "fmt-check")
	require.Error(t, err)
	require.Contains(t, out, "not a git repository")

	out, err = run("git", "init", "-q")
	require.NoError(t, err, out)
	first, second = sums()
	require.Equal(t, first, second)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.c"), nil, 0o600))
	third, _ := sums()
	require.NotEqual(t, second, third)
	out, err = run("make", "-s", "fmt-check")
	require.NoError(t, err, out)
}
