package generated

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWriteLeavesEqualFilesAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.go")
	require.NoError(t, Write(path, []byte("one")))
	long := time.Unix(1, 0)
	require.NoError(t, os.Chtimes(path, long, long))
	require.NoError(t, Write(path, []byte("one")))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, info.ModTime().Equal(long), "an equal file was written again")

	held, err := os.Open(path) // a reader of the old file still reads that
	require.NoError(t, err)
	defer func() { _ = held.Close() }()
	require.NoError(t, Write(path, []byte("another")))
	old := make([]byte, 10)
	n, _ := held.Read(old)
	require.Equal(t, "one", string(old[:n]))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "another", string(text))
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestWriteSaysWhatFailed(t *testing.T) {
	require.ErrorIs(t, Write(filepath.Join(t.TempDir(), "absent", "file"), nil), os.ErrNotExist)
}
