package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestRunDirectoryBelowARelativeBase(t *testing.T) {
	work, err := os.MkdirTemp("/tmp", "p") //nolint:usetesting // short: paths of sockets are bounded
	require.NoError(t, err)
	defer os.RemoveAll(work)
	t.Chdir(work)
	require.NoError(t, os.Mkdir("t", 0o700))
	for _, base := range []string{"t", "."} {
		t.Setenv("TMPDIR", base)
		c := start(t, "probe")
		require.True(t, strings.HasPrefix(c.runner.dir, filepath.Join(work, base)+"/"), c.runner.dir)
		require.NoError(t, c.Close())
	}
}

// The error names every directory that was tried and what to do.
func TestNoRunDirectory(t *testing.T) {
	work := t.TempDir()
	file, long := filepath.Join("/dev/null", "x"), "/"+strings.Repeat("x", maxBase)
	_, err := makeRunDirIn("/nonexistent", "", long, file, "/nonexistent")
	require.ErrorIs(t, err, plugin.System)
	require.EqualError(t, err, "no directory for the plugin's socket, set TMPDIR to one of at most 40 characters that can be "+
		"written: /nonexistent: no such file or directory; "+long+": its path has 41 characters; "+file+": not a directory")
	t.Chdir(work)
	require.NoError(t, os.Remove(work))
	_, err = makeRunDirIn("relative")
	require.ErrorContains(t, err, "relative: ")
}

// An umask that takes rights from the user itself does not keep host and plugin apart.
func TestRunDirectoryUnderAnyUmask(t *testing.T) {
	defer unix.Umask(unix.Umask(0o777))
	require.Contains(t, startFails(t, "directories"), "run directory drwx------, below it drwx------")
	status, err := os.ReadFile("/proc/" + itoa(start(t, "probe").PID()) + "/status")
	require.NoError(t, err)
	require.Contains(t, string(status), "\nUmask:\t0077\n")
}

// Where this process has no descriptor left, no other directory would help.
func TestNoDescriptorForARunDirectory(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "p") //nolint:usetesting // likewise
	require.NoError(t, err)
	defer os.RemoveAll(base)
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 3
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	_, err = makeRunDirIn(base, "/tmp")
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	require.ErrorIs(t, err, plugin.OutOfMemory)
	require.ErrorIs(t, err, unix.EMFILE)
	require.NotContains(t, err.Error(), "TMPDIR")
}
