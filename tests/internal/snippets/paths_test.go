package snippets

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	quoted   = regexp.MustCompile("`([^`\\s]+)`")
	fileName = regexp.MustCompile(`^[\w*./-]+\.(go|c|h|cu|cuh|py|sh|md)$`)
	target   = regexp.MustCompile("`make ([a-z0-9-]+)")
	rule     = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
)

// TestPagesNameWhatIsThere: a path, a file or a target of make that a page names exists. The changelog and the
// decisions are history and may name what is gone.
func TestPagesNameWhatIsThere(t *testing.T) {
	pages, paths := tree(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, m := range rule.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, m[1])
	}
	if len(pages) < 15 || len(paths) < 500 || len(targets) < 30 {
		t.Fatalf("found %d pages, %d paths, %d targets; want more", len(pages), len(paths), len(targets))
	}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, name := range missing(line, paths, targets) {
				t.Errorf("%s:%d names %s, which does not exist", page, i+1, name)
			}
		}
	}
}

func TestMissingNames(t *testing.T) {
	paths := []string{"docs", "host", "host/comm.go", "host/quick.go", "docs/guide"}
	for line, want := range map[string][]string{
		"`host/comm.go`, `host/`, `comm.go`, `quick*.go`, `./host`": nil,
		"`make docs`, `make dogs` and `make docs2`":                 {"make dogs", "make docs2"},
		"`host/gone.go` and `host/*.c` and `gone.go`":               {"host/gone.go", "host/*.c", "gone.go"},
		"`docs/guides/`, `build/anything`, `and/or`":                {"docs/guides/"},
	} {
		if got := missing(line, paths, []string{"docs"}); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// tree returns the pages that speak of what is there, and all paths of the repository.
func tree(t *testing.T) (pages, paths []string) {
	built := []string{".git", ".venv", ".venv-docs", ".venv-wheel", "bin", "build", "dist", "docs/reference"}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if slices.Contains(built, name) && d.IsDir() {
			return fs.SkipDir
		}
		paths = append(paths, name)
		if path.Ext(name) == ".md" && name != "CHANGELOG.md" && !strings.HasPrefix(name, "docs/decisions/") {
			pages = append(pages, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages, paths
}

// missing returns what a line names and nothing is: paths from a folder of the root on, files by their last elements,
// and targets of make.
func missing(line string, paths, targets []string) (list []string) {
	for _, m := range quoted.FindAllStringSubmatch(line, -1) {
		name := strings.TrimSuffix(strings.TrimPrefix(m[1], "./"), "/")
		first, _, deep := strings.Cut(name, "/")
		if first == "build" || !(deep && slices.Contains(paths, first)) && !fileName.MatchString(name) {
			continue
		}
		if !slices.ContainsFunc(paths, func(p string) bool { return ends(p, name) }) {
			list = append(list, m[1])
		}
	}
	for _, m := range target.FindAllStringSubmatch(line, -1) {
		if !slices.Contains(targets, m[1]) {
			list = append(list, "make "+m[1])
		}
	}
	return list
}

// ends reports whether the last elements of a path match a pattern.
func ends(p, pattern string) bool {
	elements := strings.Split(p, "/")
	n := strings.Count(pattern, "/") + 1
	if n > len(elements) {
		return false
	}
	matched, err := path.Match(pattern, strings.Join(elements[len(elements)-n:], "/"))
	return err == nil && matched
}
