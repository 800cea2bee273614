package host_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rooms says what the packages under a folder may not import: packages of this repository, with all below them. An
// exception begins with "=" and stands for one package alone.
var rooms = []struct {
	folder    string
	forbidden []string
}{
	{"plugin", []string{"host", "transports", "cuda", "capi", "cmd", "tests", "bench", "python"}},
	{"cuda", []string{"host", "transports", "plugin/process", "plugin/shared", "capi", "cmd", "tests", "bench"}},
	{"transports", []string{"host", "capi", "cmd", "bench"}},
	{"host", []string{"transports", "capi", "cmd", "tests", "bench"}},
	{"host/internal", []string{"=host"}},
	{"host/internal/call", []string{"host/internal", "host/memory", "host/bootstrap", "host/topology", "host/selector",
		"host/algorithm", "cuda"}},
	{"host/internal/diagnosis", []string{"host/internal/buffers", "host/internal/plans", "host/bootstrap", "host/memory",
		"host/selector", "host/algorithm", "cuda"}},
	{"host/internal/buffers", []string{"host/internal/plans", "host/bootstrap", "host/selector", "host/algorithm"}},
	{"host/internal/plans", []string{"host/internal/buffers", "host/bootstrap", "host/memory", "cuda"}},
	{"host/internal/survey", []string{"host/internal/call", "host/internal/buffers", "host/internal/plans",
		"host/bootstrap", "host/executor"}},
	{"host/internal/turn", []string{"host", "plugin", "cuda"}},
	{"host/report", []string{"host/internal", "host/bootstrap", "host/memory"}},
}

// Arrows between packages point one way. Tests may go against them.
func TestImportsPointOneWay(t *testing.T) {
	const module = "github.com/shunt-ccl/shunt/"
	for _, room := range rooms {
		files := 0
		require.NoError(t, filepath.WalkDir(filepath.Join("..", room.folder),
			func(path string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
					strings.Contains(path, "test/") {
					return err
				}
				files++
				file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
				if err != nil {
					return err
				}
				for _, spec := range file.Imports {
					imported, err := strconv.Unquote(spec.Path.Value)
					if err != nil {
						return err
					}
					imported, ours := strings.CutPrefix(imported, module)
					if own := filepath.ToSlash(filepath.Dir(strings.TrimPrefix(path, "../"))); !ours || imported == own {
						continue
					}
					if slices.ContainsFunc(room.forbidden, func(forbidden string) bool {
						return "="+imported == forbidden || imported == forbidden || strings.HasPrefix(imported, forbidden+"/")
					}) {
						t.Errorf("%s imports %s, which packages in %s may not", path, imported, room.folder)
					}
				}
				return nil
			}))
		require.NotZero(t, files, "no files in %s", room.folder)
	}
}
