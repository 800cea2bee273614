// Package noexectest mounts a file system noexec for one test, as many machines mount /tmp.
package noexectest

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Copy returns the path of a copy of a file, in a file system that is mounted noexec. Only the calling goroutine sees
// it, and stays on its thread.
func Copy(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	dir := t.TempDir()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skipf("a mount of its own: %v", err)
	}
	require.NoError(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	require.NoError(t, unix.Mount("none", dir, "tmpfs", unix.MS_NOEXEC, ""))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	path := filepath.Join(dir, filepath.Base(file))
	require.NoError(t, os.WriteFile(path, content, 0o700))
	return path
}
