// Command house prints the sizes of the rooms of package host and which imports which: `make house`. With a folder as
// its argument it examines the tree there, such as a worktree of an earlier commit.
package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/shunt-ccl/shunt/"

// room is a package without its tests.
type room struct {
	files, lines, fields, methods int
	imports                       map[string]bool // of the same tree
}

// extent is a file or a function, and its lines.
type extent struct {
	name  string
	lines int
}

type house struct {
	rooms            map[string]*room
	lines, testLines int
	file, function   extent
}

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	h := house{rooms: map[string]*room{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "build" || d.Name() == "testdata" || (d.Name()[0] == '.' && path != root)) {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return h.read(path, name)
	})
	if err != nil {
		log.Fatal(err)
	}
	h.print()
}

func (h *house) read(path, name string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments)
	if err != nil {
		return err
	}
	lines := set.Position(file.FileEnd).Line - 1
	if strings.HasSuffix(name, "_test.go") {
		h.testLines += lines
		return nil
	}
	h.lines += lines
	if ast.IsGenerated(file) {
		return nil
	}
	h.file = longer(h.file, extent{name, lines})
	folder := filepath.Dir(name)
	r := h.rooms[folder]
	if r == nil {
		r = &room{imports: map[string]bool{}}
		h.rooms[folder] = r
	}
	r.files++
	r.lines += lines
	for _, i := range file.Imports {
		if of, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module); ours {
			r.imports[of] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			length := set.Position(n.End()).Line - set.Position(n.Pos()).Line + 1
			h.function = longer(h.function, extent{name + ": " + n.Name.Name, length})
			if n.Recv != nil && ofCommunicator(n.Recv.List[0].Type) {
				r.methods++
			}
		case *ast.TypeSpec:
			if s, ok := n.Type.(*ast.StructType); ok && n.Name.Name == "Communicator" {
				r.fields += s.Fields.NumFields()
			}
		}
		return true
	})
	return nil
}

func longer(a, b extent) extent {
	if b.lines > a.lines {
		return b
	}
	return a
}

func ofCommunicator(t ast.Expr) bool {
	if pointer, ok := t.(*ast.StarExpr); ok {
		t = pointer.X
	}
	name, ok := t.(*ast.Ident)
	return ok && name.Name == "Communicator"
}

func (h *house) print() {
	var names []string
	for name := range h.rooms {
		if name == "host" || strings.HasPrefix(name, "host/") {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(h.rooms[b].lines, h.rooms[a].lines), cmp.Compare(a, b))
	})
	fmt.Printf("%-32s %6s %6s %8s %8s\n", "package", "files", "lines", "fan-in", "fan-out")
	for _, name := range names {
		in := 0
		for _, other := range h.rooms {
			if other.imports[name] {
				in++
			}
		}
		r := h.rooms[name]
		fmt.Printf("%-32s %6d %6d %8d %8d\n", name, r.files, r.lines, in, len(r.imports))
	}
	if host := h.rooms["host"]; host != nil {
		fmt.Printf("Communicator: %d fields, %d methods\n", host.fields, host.methods)
	}
	fmt.Printf("Go: %d lines, and %d of tests\n", h.lines, h.testLines)
	fmt.Printf("longest file: %s, %d lines\nlongest function: %s, %d lines\n", h.file.name, h.file.lines, h.function.name,
		h.function.lines)
}
