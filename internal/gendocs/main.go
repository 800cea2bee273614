// Command gendocs writes what is generated in docs/: the page of options, and
// the code in the guide for transport authors, which is that of its example.
// With -reference it writes instead the pages of the site that are made of the
// source: Go packages, the C header, the command line; Python's are made by the
// site's own plugin. Run it from the repository root, by `make generate` and
// `make docs`.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"regexp"

	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/internal/generated"
)

func main() {
	log.SetFlags(0)
	reference := flag.String("reference", "", "write the reference pages into this folder")
	shunt := flag.String("shunt", "bin/shunt", "the command whose help is written")
	flag.Parse()
	if *reference != "" {
		if err := writeReference(*reference, *shunt); err != nil {
			log.Fatal(err)
		}
		return
	}
	write("docs/options.md", option.Markdown())
	const page = "docs/transport-author.md"
	text, err := os.ReadFile(page)
	if err != nil {
		log.Fatal(err)
	}
	write(page, quote(string(text)))
}

func write(path, text string) {
	if err := generated.Write(path, []byte(text)); err != nil {
		log.Fatal(err)
	}
}

// block is a fenced block behind a comment that says what it quotes.
var block = regexp.MustCompile("(?s)(<!-- code: (\\S+) (\\S+) -->\n```go\n).*?(```\n)")

// quote fills every such block with the declaration it names.
func quote(page string) string {
	return block.ReplaceAllStringFunc(page, func(old string) string {
		m := block.FindStringSubmatch(old)
		code, err := declaration(m[2], m[3])
		if err != nil {
			log.Fatal(err)
		}
		return m[1] + code + "\n" + m[4]
	})
}

// declaration returns the source of a function or method in a file, with its
// comment.
func declaration(path, name string) (string, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.ParseComments)
	if err != nil {
		return "", err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != name {
			continue
		}
		from := f.Pos()
		if f.Doc != nil {
			from = f.Doc.Pos()
		}
		return string(source[set.Position(from).Offset:set.Position(f.End()).Offset]), nil
	}
	return "", fmt.Errorf("%s has no function %s", path, name)
}
