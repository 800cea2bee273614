package host_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type room struct {
	folder    string
	forbidden []string
}

// rooms says what the packages under a folder may not import: packages of this repository, with all below them; "" is
// all of it. "=" before a name stands for that package alone.
var rooms = []room{
	{"=plugin", []string{""}},
	{"plugin", []string{"host", "transports", "cuda", "capi", "cmd", "tests", "bench", "internal"}},
	{"plugin/ring", []string{"plugin/process", "plugin/shared", "plugin/proto"}},
	{"cuda", []string{"host", "transports", "plugin/process", "plugin/shared", "capi", "cmd", "tests", "bench"}},
	{"transports", []string{"host", "capi", "cmd", "tests", "bench", "internal"}},
	{"docs/example", []string{"host", "transports", "cuda", "capi", "cmd", "tests", "bench", "internal"}},
	{"host", []string{"transports", "capi", "cmd", "tests", "bench"}},
	{"host/internal", []string{"=host"}},
	{"host/internal/call", []string{"host/internal", "host/memory", "host/bootstrap", "host/topology", "host/selector",
		"host/algorithm", "cuda"}},
	{"host/internal/diagnosis", []string{"host/internal/buffers", "host/internal/plans", "host/bootstrap", "host/memory",
		"host/selector", "host/algorithm", "cuda"}},
	{"host/internal/buffers", []string{"host/internal/plans", "host/bootstrap", "host/selector", "host/algorithm"}},
	{"host/internal/allocator", []string{"host/internal/call", "host/internal/plans", "host/bootstrap", "host/selector",
		"host/algorithm"}},
	{"host/internal/plans", []string{"host/internal/buffers", "host/bootstrap", "host/memory", "cuda"}},
	{"host/internal/endpoints", []string{"host/selector", "host/algorithm", "host/option"}},
	{"host/internal/survey", []string{"host/internal/call", "host/internal/buffers", "host/internal/plans",
		"host/bootstrap", "host/executor"}},
	{"host/internal/job", []string{"host/internal/call", "host/internal/buffers", "host/internal/allocator",
		"host/internal/pool", "host/internal/turn", "host/memory", "host/algorithm"}},
	{"host/internal/round", []string{"host/internal", "=host/bootstrap", "host/memory", "host/executor", "cuda"}},
	{"host/internal/regroup", []string{"host/internal", "host/executor", "host/memory", "host/selector", "host/topology",
		"host/algorithm", "cuda"}},
	{"host/internal/logs", []string{"host", "plugin", "cuda"}},
	{"host/internal/pinned", []string{"host", "plugin"}},
	{"host/internal/turn", []string{"=host", "host/bootstrap", "host/executor", "host/memory", "host/internal/call",
		"host/internal/diagnosis", "host/internal/job", "plugin", "cuda"}},
	{"host/carrier", []string{"=host", "host/executor", "host/bootstrap", "host/memory", "host/selector", "host/topology",
		"host/algorithm", "cuda"}},
	{"host/report", []string{"host/internal", "host/bootstrap", "host/memory"}},
	{"capi", []string{"cmd", "tests", "bench", "internal/failpoint"}},
	{"cmd", []string{"capi", "tests/internal"}},
	{"tests/pool", []string{""}},
	{"tests/conformance", []string{"transports", "capi", "cmd", "bench", "internal"}},
	{"tests/internal", []string{"capi", "cmd", "bench"}},
	{"bench/peers", []string{""}},
	{"bench/go", []string{"capi", "cmd", "tests", "internal", "host/internal"}},
	{"internal", []string{"=host", "host/internal", "transports", "capi", "cmd", "tests", "bench"}},
}

const module = "github.com/shunt-ccl/shunt/"

// Arrows between packages point one way. Tests may go against them.
func TestImportsPointOneWay(t *testing.T) {
	packages := importsOfPackages(t)
	for _, room := range rooms {
		found := false
		for name, imports := range packages {
			if !within(name, room.folder) {
				continue
			}
			found = true
			for _, imported := range imports {
				if slices.ContainsFunc(room.forbidden, func(f string) bool { return within(imported, f) }) {
					t.Errorf("%s imports %s, which packages in %q may not", name, imported, room.folder)
				}
			}
		}
		require.True(t, found, "no package in %q", room.folder)
	}
	for name := range packages {
		if !slices.ContainsFunc(rooms[1:], func(r room) bool { return within(name, r.folder) }) {
			t.Errorf("no rule says what %s may import", name)
		}
	}
}

// within reports whether a package lies in a folder, as rooms name them.
func within(name, folder string) bool {
	if alone, is := strings.CutPrefix(folder, "="); is {
		return name == alone
	}
	return folder == "" || name == folder || strings.HasPrefix(name, folder+"/")
}

// importsOfPackages returns the packages of this repository that each of them imports in its product.
func importsOfPackages(t *testing.T) map[string][]string {
	packages := map[string][]string{}
	tree := os.DirFS("..")
	require.NoError(t, fs.WalkDir(tree, ".", func(at string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && (name == "testdata" || name == "build" || strings.HasPrefix(name, ".v")) {
			return fs.SkipDir
		}
		own := path.Dir(at)
		if !strings.HasSuffix(at, ".go") || strings.HasSuffix(at, "_test.go") || strings.HasSuffix(own, "test") {
			return nil // no Go, a test, or a package for tests
		}
		text, err := fs.ReadFile(tree, at)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), at, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		imports := packages[own]
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if imported, ours := strings.CutPrefix(imported, module); ours {
				imports = append(imports, imported)
			}
		}
		packages[own] = imports
		return nil
	}))
	return packages
}
