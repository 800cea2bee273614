package shared

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/ctransport"
	"github.com/shunt-ccl/shunt/plugin"
)

// A copy that was interrupted must not end the process that loads it.
func TestObjectsThatWereCutOffAreRefused(t *testing.T) {
	path, err := ctransport.Build(t.TempDir())
	require.NoError(t, err)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, wholeELF(bytes.NewReader(whole), int64(len(whole))))
	cut := filepath.Join(t.TempDir(), "cut.so")
	for _, n := range []int{4, 63, 64, 100, 1000, 5000, len(whole) / 2} {
		require.NoError(t, os.WriteFile(cut, whole[:n], 0o755))
		_, err := Open(cut, nil)
		require.ErrorIs(t, err, plugin.PluginRejected, "%d of %d bytes", n, len(whole))
		require.ErrorContains(t, err, "it is cut off", "%d of %d bytes", n, len(whole))
	}
}

func FuzzWholeELF(f *testing.F) {
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(f, err)
	f.Add(self[:4096], int64(4096))
	f.Add(self[:4096], int64(len(self)))
	f.Add([]byte("\x7fELF"), int64(4))
	f.Fuzz(func(t *testing.T, start []byte, size int64) {
		if err := wholeELF(bytes.NewReader(start), max(size, 0)); err != nil {
			require.ErrorIs(t, err, plugin.PluginRejected)
		}
	})
}
