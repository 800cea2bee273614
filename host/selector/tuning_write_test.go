package selector

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestTuningIsWrittenWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tuning.json")
	tuning := &Tuning{Comment: "here", Entries: []Entry{{Collective: "barrier", Algorithm: "shm/one_shot", World: 2,
		Hosts: 1, Memory: "host", Points: []Point{{0, 1.5}}}}}
	require.NoError(t, tuning.WriteFile(path))
	back, err := ReadTuning(path)
	require.NoError(t, err)
	require.Equal(t, tuning, back)
	// A link stays, and a device is written.
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(path, link))
	require.NoError(t, tuning.WriteFile(link))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, info.Mode().Type())
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	read := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(fifo)
		read <- err
	}()
	require.NoError(t, tuning.WriteFile(fifo))
	require.NoError(t, <-read)
	// What is refused leaves the old file, and nothing beside it.
	bad := &Tuning{Entries: []Entry{{Collective: "barrier", Algorithm: "shm/one_shot"}}}
	require.ErrorIs(t, bad.WriteFile(path), plugin.InvalidArgument)
	require.ErrorIs(t, tuning.WriteFile(filepath.Join(dir, "absent", "x")), plugin.System)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	require.ErrorIs(t, tuning.WriteFile(filepath.Join(dir, "folder")), plugin.System)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	back, err = ReadTuning(path)
	require.NoError(t, err)
	require.Equal(t, tuning, back)
}
