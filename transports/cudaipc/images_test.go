package cudaipc

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// images/SOURCES, which kernels/compile writes, has the sums of all sources and
// then of all images. Who changes a kernel without compiling it, or an image
// without its source, is told here; kernels/compile --check proves the rest.
func TestImagesBelongToTheirSources(t *testing.T) {
	file, err := os.Open(filepath.Join("images", "SOURCES"))
	require.NoError(t, err)
	defer file.Close()
	listed := map[string][]string{}
	lines := bufio.NewScanner(file)
	require.True(t, lines.Scan())
	require.Regexp(t, `^nvcc \d+\.\d+\.\d+$`, lines.Text())
	for lines.Scan() {
		sum, name, ok := strings.Cut(lines.Text(), "  ./")
		require.True(t, ok, lines.Text())
		folder := "kernels"
		if strings.HasSuffix(name, ".fatbin") {
			folder = "images"
		}
		listed[folder] = append(listed[folder], name)
		data, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		got := sha256.Sum256(data)
		require.Equal(t, sum, hex.EncodeToString(got[:]), "%s/%s has changed since kernels/compile ran", folder, name)
	}
	require.NoError(t, lines.Err())
	for _, folder := range []string{"kernels", "images"} {
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		for _, e := range entries {
			if e.Name() != "SOURCES" {
				require.True(t, slices.Contains(listed[folder], e.Name()), "%s/%s is new since kernels/compile ran", folder, e.Name())
			}
		}
	}
}
