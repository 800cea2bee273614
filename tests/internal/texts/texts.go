// Package texts lists the texts that a user of Shunt may meet, from the source, and checks their form. An error has a
// subject, a verb and what was expected (see CONTRIBUTING.md); its text is the format of a constructor in Go, C and C++
// or of a raise in Python. The help of the command shunt has a summary and a description of each command, and the usage
// of each flag.
//
// What lives here is the list and the rules of form that a program can check. What a text means is for its reviewer.
package texts

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Text is one text and where it stands.
type Text struct {
	File   string // relative to the root
	Line   int
	Format string // Python's fields, and what C++ puts between strings, are %v
	// Whole is false for a part of a text: one that wraps another error, or is put before or behind something.
	Whole bool
	Part  string // Summary, Description or Flag of a command's help; "" for an error
}

// rooms are the folders whose errors reach users.
var rooms = []string{"capi", "cmd", "cuda", "host", "plugin", "transports", "python/shunt"}

// constructors are the functions that make an error of a format, and at which argument that stands.
var constructors = map[string]int{
	"plugin.Errorf": 1, "Errorf": 1, "fmt.Errorf": 0, "errors.New": 0, "usage": 0, "rankError": 2,
	"Invalid": 1, "refuse": 1, // methods, of whatever
}

// List returns every text below the root, in the order of files and lines.
func List(root string) ([]Text, error) {
	var all []Text
	for _, room := range rooms {
		err := filepath.WalkDir(filepath.Join(root, room), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			var found []Text
			switch {
			case ours(name):
			case strings.HasSuffix(name, ".go"):
				found, err = goTexts(path, strings.HasPrefix(name, "cmd/shunt/"))
			case strings.HasSuffix(name, ".py"):
				found, err = pythonTexts(path)
			case slices.Contains([]string{".c", ".h", ".cpp"}, filepath.Ext(name)):
				found, err = cTexts(path)
			}
			for i := range found {
				found[i].File = name
			}
			all = append(all, found...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ours reports whether a file is for tests and generators alone, or generated.
func ours(name string) bool {
	dir, base := filepath.Split(name)
	return strings.HasSuffix(base, "_test.go") || strings.HasSuffix(base, ".pb.go") ||
		strings.HasSuffix(base, "_gen.go") ||
		strings.Contains(dir, "/internal/probe/") || strings.Contains(dir, "test/") || strings.Contains(dir, "/emulate/") ||
		strings.Contains(dir, "/testdata/")
}

// goTexts returns the formats of a file's calls of constructors, and the help of the commands that it makes.
func goTexts(path string, commands bool) ([]Text, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, 0)
	if err != nil {
		return nil, err
	}
	var found []Text
	ast.Inspect(file, func(n ast.Node) bool {
		if e := formatIn(n); e != nil {
			if format, whole, ok := literal(e); ok {
				found = append(found, Text{Line: set.Position(e.Pos()).Line, Format: format, Whole: whole &&
					!strings.Contains(format, "%w")})
			}
		}
		if e, part := helpIn(n); commands && part != "" {
			if help, whole, ok := literal(e); ok {
				found = append(found, Text{Line: set.Position(e.Pos()).Line, Format: help, Whole: whole, Part: part})
			}
		}
		return true
	})
	return found, nil
}

// formatIn returns the format of the error that a call or a field makes; nil if it makes none.
func formatIn(n ast.Node) ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		name := nameOf(n.Fun)
		at, ok := constructors[name]
		if selector, isMethod := n.Fun.(*ast.SelectorExpr); !ok && isMethod {
			at, ok = constructors[selector.Sel.Name]
		}
		if ok && at < len(n.Args) {
			return n.Args[at]
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); !ok || key.Name != "Message" {
			return nil
		}
		if call, ok := n.Value.(*ast.CallExpr); ok && nameOf(call.Fun) == "fmt.Sprintf" {
			return call.Args[0]
		}
		return n.Value
	}
	return nil
}

// nameOf returns a function's name as it is called, with its package.
func nameOf(f ast.Expr) string {
	switch f := f.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
	}
	return ""
}

// literal returns a string of the source; whole says that nothing is joined to it.
func literal(e ast.Expr) (text string, whole, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, true, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		left, _, ok1 := literal(e.X)
		right, _, ok2 := literal(e.Y)
		return left + right, ok1 && ok2, ok1 || ok2
	}
	return "", false, false
}

var (
	raised = regexp.MustCompile(`raise \w[\w.]*\(\s*f?"((?:[^"\\]|\\.)*)"`)
	field  = regexp.MustCompile(`\{[^{}]*\}`)
)

// pythonTexts returns the texts of a file's raise statements that begin with a string.
func pythonTexts(path string) ([]Text, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var found []Text
	for _, at := range raised.FindAllSubmatchIndex(source, -1) {
		text := string(source[at[2]:at[3]])
		rest := strings.TrimSpace(string(source[at[1]:min(at[1]+200, len(source))]))
		found = append(found, Text{
			Line: 1 + strings.Count(string(source[:at[0]]), "\n"), Format: field.ReplaceAllString(text, "%v"),
			Whole: strings.HasPrefix(rest, ")") || strings.HasPrefix(rest, ","),
		})
	}
	return found, nil
}
