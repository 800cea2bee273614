package builttest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Why the results of these tests need not depend on all sources.
var others = map[string]string{
	"capi/sanitizer_test.go":                         "the program is in the test",
	"cmd/shunt/preload_test.go":                      "the programs are in the test",
	"internal/gennotices/main.go":                    "no test",
	"tests/internal/rules/breakrules/main.go":        "no test",
	"transports/cudaipc/internal/emulate/build.go":   "it looks at the files itself",
	"transports/internal/carriedtest/carriedtest.go": "what it builds is the package under test",
	"transports/nccl/nccltest/nccltest.go":           "the sources are embedded",
}

// Go would keep the result of a test whose compiler's sources have changed.
func TestCompilersAreStartedByCommand(t *testing.T) {
	const root = "../.."
	compiler := regexp.MustCompile(`exec\.Command(Context)?\((ctx, |t\.Context\(\), )?"(go|cc|gcc|g\+\+|c\+\+|make|python3|[^"]*\.sh)"`)
	seen, files := 0, 0
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root+"/")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root:
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".go" || others[name] != "":
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "builttest.Command(") {
			seen++
		}
		require.NotRegexp(t, compiler, string(text), "%s: start compilers with builttest.Command", name)
		return err
	}))
	require.Greater(t, files, 500)
	require.Greater(t, seen, 8)
}
