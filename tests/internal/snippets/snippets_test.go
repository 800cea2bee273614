package snippets

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/internal/builttest"
)

const root = "../../.."

// run executes a command in the module's root and returns what it wrote to
// standard output.
func run(t *testing.T, env []string, name string, arguments ...string) string {
	t.Helper()
	builttest.Sources()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, name, arguments...)
	command.Dir = root
	command.WaitDelay = 10 * time.Second // what it has started may hold the pipes open after its end
	command.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(arguments, " "), err, out, stderr.String())
	}
	return string(out)
}

// readme returns a program of README.md.
func readme(t *testing.T, name string) Snippet {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := Extract(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("the README has no snippet %s", name)
	return Snippet{}
}

// write writes a program to a file of that name, in a directory of the test.
func write(t *testing.T, s Snippet, file string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), file)
	if err := os.WriteFile(path, []byte(s.Text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// built is the directory in which shunt and library build, once for all tests.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "snippets-")
	if err != nil {
		panic(err)
	}
	built = dir
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

var (
	onceShunt   sync.Once
	onceLibrary sync.Once
)

// shunt returns the command: SHUNT_COMMAND, which make test has built, or built here.
func shunt(t *testing.T) string {
	t.Helper()
	if made := os.Getenv("SHUNT_COMMAND"); made != "" {
		return made
	}
	path := filepath.Join(built, "shunt")
	onceShunt.Do(func() { run(t, nil, "go", "build", "-o", path, "./cmd/shunt") })
	return there(t, path)
}

// there returns path, or fails the test if another one failed to build it.
func there(t *testing.T, path string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("it was not built, as an earlier test says: %v", err)
	}
	return path
}

// library returns libshunt.so: SHUNT_LIBRARY, which make test has built, or built here.
func library(t *testing.T) string {
	t.Helper()
	if made := os.Getenv("SHUNT_LIBRARY"); made != "" {
		return made
	}
	path := filepath.Join(built, "libshunt.so")
	onceLibrary.Do(func() { run(t, nil, "sh", "capi/build.sh", path) })
	return there(t, path)
}

// fourSums checks what four ranks printed.
func fourSums(t *testing.T, out string) {
	t.Helper()
	sums := 0
	for line := range strings.Lines(out) {
		if strings.HasSuffix(strings.TrimSpace(line), "sum 10") {
			sums++
		}
	}
	if sums != 4 {
		t.Errorf("%d of 4 ranks printed sum 10:\n%s", sums, out)
	}
}

// runRanks starts a program as ranks and returns what they wrote to standard output.
func runRanks(t *testing.T, env []string, ranks int, program ...string) string {
	t.Helper()
	return run(t, env, shunt(t), append([]string{"run", "-n", strconv.Itoa(ranks)}, program...)...)
}

// compileC compiles a program with the installed library, and returns it with the
// variables by which it finds the library.
func compileC(t *testing.T, source string) (program string, env []string) {
	t.Helper()
	if _, err := exec.LookPath("pkg-config"); err != nil {
		t.Skip("pkg-config is absent")
	}
	prefix := t.TempDir()
	run(t, []string{"PREFIX=" + prefix}, "sh", "capi/install.sh", library(t))
	program = filepath.Join(t.TempDir(), "program")
	env = []string{"PKG_CONFIG_PATH=" + filepath.Join(prefix, "lib", "pkgconfig"), "LD_LIBRARY_PATH=" +
		filepath.Join(prefix, "lib")}
	run(t, env, "sh", "-c", `cc -Wall -Werror -o "$0" "$1" $(pkg-config --cflags --libs shunt)`, program, source)
	return program, env
}

// pythonOf returns an interpreter that has numpy, and the variables by which it finds
// the package and the library.
func pythonOf(t *testing.T) (python string, env []string) {
	t.Helper()
	python = cmp.Or(os.Getenv("TEST_PYTHON"), "python3")
	if out, err := exec.Command(python, "-c", "import numpy").CombinedOutput(); err != nil {
		t.Skipf("%s has no numpy (make test sets TEST_PYTHON to one that has): %v %s", python, err, out)
	}
	packages, err := filepath.Abs(filepath.Join(root, "python"))
	if err != nil {
		t.Fatal(err)
	}
	return python, []string{"PYTHONPATH=" + packages, "SHUNT_LIBRARY=" + library(t)}
}

func TestReadmeGo(t *testing.T)     { fourSums(t, runGo(t, readme(t, "go"), 4)) }
func TestReadmeC(t *testing.T)      { fourSums(t, runC(t, readme(t, "c"), 4)) }
func TestReadmePython(t *testing.T) { fourSums(t, runPython(t, readme(t, "python"), 4)) }

func TestExtract(t *testing.T) {
	list, err := Extract("text\n<!-- snippet: a -->\n```go\none\n\ntwo\n```\n```\nnot this\n```\n  <!-- snippet: b -->\n```c\n```\n")
	if err != nil || len(list) != 2 || list[0] != (Snippet{"a", "go", 3, "one\n\ntwo\n"}) ||
		list[1] != (Snippet{"b", "c", 12, ""}) {
		t.Errorf("%+v, %v", list, err)
	}
	for _, bad := range []string{
		"<!-- snippet: a -->\ntext", "<!-- snippet: a -->", "<!-- snippet: a -->\n```go\n", "<!-- snippet: -->\n```\n```",
		"<!-- snippet: a -->\n```\n```\n<!-- snippet: a -->\n```\n```",
	} {
		if list, err := Extract(bad); err == nil {
			t.Errorf("%q gave %+v", bad, list)
		}
	}
}

func FuzzExtract(f *testing.F) {
	f.Add("<!-- snippet: a -->\n```go\nx\n```\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Extract(text)
		if err != nil {
			return
		}
		for _, s := range list {
			if !strings.Contains(text+"\n", s.Text) {
				t.Errorf("%q is not in %q", s.Text, text)
			}
		}
	})
}
