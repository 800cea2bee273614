package option

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// reads finds the variables that programs in C and Python read from the environment.
var reads = regexp.MustCompile(`(?:getenv\(|environ(?:\.get\(|\[))["'](SHUNT_[A-Z_]+)["']`)

// ofTransports are options of a transport that another program reads too.
var ofTransports = []string{"SHUNT_NCCL_LIBRARY", "SHUNT_NCCL_REGISTER"}

// A variable that the table lacks is taken for an option of a transport, which then rejects it.
func TestVariablesOfCAndPythonAreInTheTable(t *testing.T) {
	found := map[string]string{} // to a file that reads it
	for _, root := range []string{"../../capi", "../../cuda", "../../plugin", "../../transports", "../../python/shunt"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains([]string{".c", ".h", ".cpp", ".hpp", ".py"}, filepath.Ext(path)) ||
				strings.Contains(path, "/test") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range reads.FindAllSubmatch(text, -1) {
				found[string(match[1])] = path
			}
			return err
		}))
	}
	require.Contains(t, found, "SHUNT_NCCL_FORWARD")
	require.Contains(t, found, "SHUNT_TORCH_CACHE")
	for _, v := range Variables() {
		delete(found, v.Name)
	}
	for _, name := range ofTransports {
		delete(found, name)
	}
	require.Empty(t, found)
}
