package host_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An exported name that only stands for a type of an internal package shows no reader of the documentation its fields.
func TestExportedTypesAreNoAliasesOfInternalOnes(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	checked := 0
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		internal := map[string]bool{} // packages, by name
		for _, i := range file.Imports {
			if where := strings.Trim(i.Path.Value, `"`); strings.Contains(where, "/internal/") {
				internal[where[strings.LastIndex(where, "/")+1:]] = true
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			checked++
			if of, ok := spec.Type.(*ast.SelectorExpr); ok {
				from := of.X.(*ast.Ident).Name
				require.False(t, internal[from], "%s is %s.%s", spec.Name.Name, from, of.Sel.Name)
			}
			return true
		})
	}
	require.NotZero(t, checked)
}
