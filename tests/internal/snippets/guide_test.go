package snippets

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// expectation says how a program of the guide is run, and what it prints.
type expectation struct {
	how   func(t *testing.T, s Snippet, ranks int) string
	ranks int
	says  map[string]int // how many lines contain a text
}

// guide has every program of docs/guide. Names that begin with "gpu-" need GPUs and run
// on machines that have some (scripts/device-run.sh); here Python only parses them.
var guide = map[string]expectation{
	"algo": {runShell, 1, map[string]int{
		`runs shm/two_shot, 2.50 µs (estimate): SHUNT_ALGO clause "all_reduce:8-8=shm/two_shot"`: 1,
		"runs shm/one_shot, ": 1}},
	"c-calls":     {runC, 2, calls},
	"collectives": {runPython, 3, nil},
	"failpoint":   {runShell, 1, map[string]int{"FAILED": 1}},
	"go-calls":    {runGo, 2, calls},
	"group":       {runPython, 3, nil},
	"objects":     {runPython, 3, nil},
	"request":     {runPython, 2, nil},
	"await":       {runPython, 2, nil},
	"shrink":      {nil, 0, nil}, // TestGuideShrink
	"unique-id":   {runAlone, 1, map[string]int{"rank 0 of 3": 1, "rank 1 of 3": 1, "rank 2 of 3": 1}},
	"watchdog":    {nil, 0, nil}, // python/tests/test_failure.py
	"window":      {runPython, 3, nil},
}

// calls is the output of the programs that show the same calls in two languages.
var calls = map[string]int{
	"sum 1, from the left 0, in the window 1": 1, "sum 1, from the left 1, in the window 0": 1,
}

// pages returns the programs of all pages of the guide by name. A block in a programming
// language without a marker, and a name that two pages use, fail the test.
func pages(t *testing.T) map[string]Snippet {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "docs", "guide", "*.md"))
	if err != nil || len(paths) < 6 {
		t.Fatalf("the guide has the pages %v: %v", paths, err)
	}
	all := map[string]Snippet{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		list, err := Extract(string(text))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		marked := map[int]bool{}
		for _, s := range list {
			if _, twice := all[s.Name]; twice {
				t.Errorf("%s:%d: another page has a snippet %s", path, s.Line, s.Name)
			}
			all[s.Name], marked[s.Line] = s, true
		}
		for _, line := range unmarked(string(text), marked) {
			t.Errorf("%s:%d: a program without a marker: nothing runs it", path, line)
		}
	}
	return all
}

// unmarked returns the lines of blocks in programming languages that are not marked.
func unmarked(document string, marked map[int]bool) []int {
	var lines []int
	for i, line := range strings.Split(document, "\n") {
		switch strings.TrimSpace(line) {
		case "```go", "```c", "```python":
			if !marked[i+1] {
				lines = append(lines, i+1)
			}
		}
	}
	return lines
}

func TestGuide(t *testing.T) {
	all := pages(t)
	for name := range guide {
		if _, ok := all[name]; !ok {
			t.Errorf("the guide has no snippet %s", name)
		}
	}
	for name, s := range all {
		if strings.HasPrefix(name, "gpu-") {
			t.Run(name, func(t *testing.T) { parsePython(t, s) })
			continue
		}
		want, ok := guide[name]
		if !ok {
			t.Errorf("no test runs snippet %s of the guide", name)
		} else if want.how != nil {
			t.Run(name, func(t *testing.T) {
				out := want.how(t, s, want.ranks)
				for text, times := range want.says {
					if n := strings.Count(out, text); n != times {
						t.Errorf("%d times %q, want %d:\n%s", n, text, times, out)
					}
				}
			})
		}
	}
}

// TestGuideShrink: the other ranks of the program continue without rank 1.
func TestGuideShrink(t *testing.T) {
	s := pages(t)["shrink"]
	python, env := pythonOf(t)
	command := exec.Command(shunt(t), "run", "-n", "3", "--grace", "20s", python, write(t, s, "program.py"))
	command.Env = append(os.Environ(), env...)
	out, err := command.CombinedOutput()
	if n := strings.Count(string(out), "sum 2 of 2"); n != 2 || err == nil {
		t.Errorf("%d ranks went on, and shunt run returned %v, want 2 and the death of rank 1:\n%s", n, err, out)
	}
}

func TestUnmarked(t *testing.T) {
	if lines := unmarked("```c\n```\ntext\n```python\n```\n  ```go\n```sh\n", map[int]bool{1: true}); len(lines) != 2 || lines[0] != 4 || lines[1] != 6 {
		t.Errorf("lines %v, want 4 and 6", lines)
	}
}

func runPython(t *testing.T, s Snippet, ranks int) string {
	python, env := pythonOf(t)
	return runRanks(t, env, ranks, python, write(t, s, "program.py"))
}

// runAlone runs a program that makes its ranks by itself.
func runAlone(t *testing.T, s Snippet, _ int) string {
	python, env := pythonOf(t)
	return run(t, env, python, write(t, s, "program.py"))
}

func runGo(t *testing.T, s Snippet, ranks int) string {
	program := filepath.Join(t.TempDir(), "program")
	run(t, nil, "go", "build", "-o", program, write(t, s, "main.go"))
	return runRanks(t, nil, ranks, program)
}

func runC(t *testing.T, s Snippet, ranks int) string {
	program, env := compileC(t, write(t, s, "program.c"))
	return runRanks(t, env, ranks, program)
}

// runShell runs commands as a user does that has shunt on the PATH.
func runShell(t *testing.T, s Snippet, _ int) string {
	path := filepath.Dir(shunt(t)) + string(filepath.ListSeparator) + os.Getenv("PATH")
	return run(t, []string{"PATH=" + path}, "sh", "-u", write(t, s, "commands.sh"))
}

func parsePython(t *testing.T, s Snippet) {
	python, _ := pythonOf(t)
	run(t, nil, python, "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())", write(t, s, "program.py"))
}
