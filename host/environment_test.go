package host_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// readers match the functions that read package os's copy of the environment, or hand it on to a process.
var readers = map[string]*regexp.Regexp{
	"os":                    regexp.MustCompile(`^(Getenv|LookupEnv|Environ|ExpandEnv|TempDir|User\w+Dir|StartProcess)$`),
	"os/exec":               regexp.MustCompile(`^(Command|CommandContext|LookPath)$`),
	"syscall":               regexp.MustCompile(`^(Getenv|Environ|Exec|ForkExec|StartProcess)$`),
	"golang.org/x/sys/unix": regexp.MustCompile(`^(Getenv|Environ|Exec)$`),
}

// mayRead says why some functions may use them nevertheless.
var mayRead = map[string]string{
	"plugin/environment.All": "a program without cgo is Go's", "plugin/environment.Get": "likewise",
	"plugin/process.Serve":        "it runs in the plugin's process, which Go starts",
	"plugin/process.exitWithHost": "likewise",
	"internal/processors.Spare":   "it runs while the library is loaded, after Go's runtime has read the variable",
	"internal/failpoint.New":      "it runs while the library is loaded", "internal/failpoint.parse": "likewise",
	"internal/failpoint.Problem": "it says what is wrong with what New has read",
	"internal/outfile.MkdirTemp": "only commands use it",
}

// In libshunt.so and in transports that are shared objects, package os has the environment as it was when they were
// loaded: package environment has that of now.
func TestLibrariesReadTheEnvironmentOfNow(t *testing.T) {
	packages := importsOfPackages(t)
	linked := map[string]bool{}
	var link func(name string)
	link = func(name string) {
		if !linked[name] {
			linked[name] = true
			for _, imported := range packages[name] {
				link(imported)
			}
		}
	}
	for name := range packages {
		if name == "capi" || strings.HasPrefix(name, "transports/") && strings.HasSuffix(name, "/shared") {
			link(name)
		}
	}
	for _, name := range []string{"host", "host/topology", "plugin/process", "transports/ucx"} {
		require.Contains(t, linked, name)
	}
	unused := map[string]bool{}
	for name := range mayRead {
		unused[name] = true
	}
	for name := range linked {
		files, err := filepath.Glob(filepath.Join("..", name, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for function, call := range environmentReaders(t, file) {
				function = name + "." + function
				delete(unused, function)
				if mayRead[function] == "" {
					t.Errorf("%s uses %s, which has the environment of the start: use package environment", function, call)
				}
			}
		}
	}
	require.Empty(t, unused, "no longer read it")
}

// environmentReaders returns the functions of a file that use a reader, and which; "" is outside of all functions.
func environmentReaders(t *testing.T, path string) map[string]string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	require.NoError(t, err)
	names := map[string]*regexp.Regexp{}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		name := filepath.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = readers[imported]
	}
	found := map[string]string{}
	for _, declaration := range file.Decls {
		function := ""
		if f, is := declaration.(*ast.FuncDecl); is {
			function = f.Name.Name
		}
		ast.Inspect(declaration, func(n ast.Node) bool {
			if call, is := n.(*ast.CallExpr); is && len(call.Args) > 0 { // in TMPDIR, if no folder is named
				folder, literal := call.Args[0].(*ast.BasicLit)
				if s, is := call.Fun.(*ast.SelectorExpr); is && literal && folder.Value == `""` &&
					(s.Sel.Name == "MkdirTemp" || s.Sel.Name == "CreateTemp") {
					found[function] = s.Sel.Name
				}
			}
			if s, is := n.(*ast.SelectorExpr); is {
				of, is := s.X.(*ast.Ident)
				if is && names[of.Name] != nil && names[of.Name].MatchString(s.Sel.Name) {
					found[function] = of.Name + "." + s.Sel.Name
				}
			}
			return true
		})
	}
	return found
}
