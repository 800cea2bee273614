package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is the import path of this module.
const module = "github.com/shunt-ccl/shunt"

// packages lists the packages that users and authors of transports import.
var packages = []string{
	"host", "plugin", "plugin/ring", "plugin/process", "plugin/shared", "plugin/shared/export", "host/bootstrap",
	"host/carrier", "host/algorithm", "host/topology", "host/selector", "host/option", "tests/conformance", "tests/pool",
	"transports/shm", "transports/cudaipc", "transports/nccl", "transports/ucx",
}

// writeReference writes the pages of the site that come from the source: the Go
// packages, the C header, the help of the command line (shunt is the command), and
// the place that the site's plugin fills with the Python package.
func writeReference(folder, shunt string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, path := range packages {
		text, err := goPage(path)
		if err != nil {
			return fmt.Errorf("package %s: %w", path, err)
		}
		write(filepath.Join(folder, "go-"+strings.ReplaceAll(path, "/", "-")+".md"), text)
	}
	c, err := cPage(".")
	if err != nil {
		return err
	}
	write(filepath.Join(folder, "c.md"), c)
	help, err := commandPage(shunt)
	if err != nil {
		return err
	}
	write(filepath.Join(folder, "command-line.md"), help)
	write(filepath.Join(folder, "python.md"), "# Python: shunt\n\n::: shunt\n")
	return nil
}

// goPage returns the documentation of a package's exported names, in Markdown.
func goPage(path string) (string, error) {
	set := token.NewFileSet()
	var files []*ast.File
	names, err := filepath.Glob(filepath.Join(path, "*.go"))
	if err != nil {
		return "", err
	}
	for _, name := range names {
		file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			return "", err
		}
		files = append(files, file)
	}
	pkg, err := doc.NewFromFiles(set, files, module+"/"+path)
	if err != nil {
		return "", err
	}
	p := &goPrinter{pkg: pkg, set: set}
	fmt.Fprintf(&p.out, "# Go: %s\n\n```go\nimport %q\n```\n\n%s\n", path, module+"/"+path, p.prose(pkg.Doc))
	p.values("Constants", pkg.Consts)
	p.values("Variables", pkg.Vars)
	p.functions("##", pkg.Funcs)
	for _, t := range pkg.Types {
		fmt.Fprintf(&p.out, "## %s\n\n%s", t.Name, p.declaration(t.Decl, t.Doc))
		for _, v := range append(t.Consts, t.Vars...) {
			p.out.WriteString(p.declaration(v.Decl, v.Doc))
		}
		p.functions("###", t.Funcs)
		p.functions("###", t.Methods)
	}
	return p.out.String(), p.err
}

// goPrinter collects the page of one package, and the first error.
type goPrinter struct {
	pkg *doc.Package
	set *token.FileSet
	out bytes.Buffer
	err error
}

// prose returns a comment in Markdown, its headings below those of the page.
func (p *goPrinter) prose(text string) string {
	printer := p.pkg.Printer()
	printer.HeadingLevel = 4
	printer.HeadingID = func(*comment.Heading) string { return "" }
	printer.DocLinkURL = func(link *comment.DocLink) string {
		if link.ImportPath == "" {
			return "#" + strings.ToLower(link.Name)
		}
		return "https://pkg.go.dev/" + link.ImportPath + "#" + link.Name
	}
	return string(printer.Markdown(p.pkg.Parser().Parse(text)))
}

func (p *goPrinter) declaration(node ast.Node, text string) string {
	var code bytes.Buffer
	switch d := node.(type) {
	case *ast.FuncDecl:
		d.Doc, d.Body = nil, nil
	case *ast.GenDecl:
		d.Doc = nil
	}
	if err := format.Node(&code, p.set, node); err != nil && p.err == nil {
		p.err = err
	}
	return fmt.Sprintf("```go\n%s\n```\n\n%s\n", &code, p.prose(text))
}

func (p *goPrinter) values(title string, values []*doc.Value) {
	if len(values) > 0 {
		fmt.Fprintf(&p.out, "## %s\n\n", title)
	}
	for _, v := range values {
		p.out.WriteString(p.declaration(v.Decl, v.Doc))
	}
}

func (p *goPrinter) functions(level string, functions []*doc.Func) {
	for _, f := range functions {
		name := f.Name
		if f.Recv != "" {
			name = strings.TrimPrefix(f.Recv, "*") + "." + name
		}
		fmt.Fprintf(&p.out, "%s %s\n\n%s", level, name, p.declaration(f.Decl, f.Doc))
	}
}

// cPage returns the page of the C header of a checkout, and of the tables that it includes: status codes, dtypes, ops.
func cPage(root string) (string, error) {
	header, err := os.ReadFile(filepath.Join(root, "capi/include/shunt.h"))
	if err != nil {
		return "", err
	}
	tables, err := os.ReadFile(filepath.Join(root, "plugin/shunt_tables.h"))
	return headerPage("# C: shunt.h", string(header)) + "\n" + headerPage("## shunt_tables.h", string(tables)), err
}

// headerPage turns a C header into Markdown: a comment that begins a line becomes
// prose, what follows it up to the next one becomes code.
func headerPage(title, header string) string {
	var out strings.Builder
	out.WriteString(title + "\n")
	for header != "" {
		code, rest, found := strings.Cut("\n"+header, "\n/*")
		if code = strings.TrimSpace(code); code != "" {
			fmt.Fprintf(&out, "\n```c\n%s\n```\n", code)
		}
		if !found {
			break
		}
		prose, after, _ := strings.Cut(rest, "*/")
		header = after
		out.WriteString("\n")
		for line := range strings.Lines(prose) {
			out.WriteString(strings.TrimPrefix(strings.TrimPrefix(strings.TrimRight(line, " \n"), " *"), " ") + "\n")
		}
	}
	return out.String()
}

// commandPage returns the help of every command.
func commandPage(shunt string) (string, error) {
	if _, err := os.Stat(shunt); err != nil {
		return "", fmt.Errorf("%w: make build makes it", err)
	}
	help := func(args ...string) (string, error) {
		text, err := exec.Command(shunt, append(args, "--help")...).Output()
		return string(text), err
	}
	top, err := help()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "# Command line\n\n```text\n%s```\n", top)
	_, list, _ := strings.Cut(top, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.Lines(list) {
		name := strings.Fields(line)[0]
		text, err := help(name)
		if err != nil {
			return "", fmt.Errorf("shunt %s --help: %w", name, err)
		}
		fmt.Fprintf(&out, "\n## shunt %s\n\n```text\n%s```\n", name, text)
	}
	return out.String(), nil
}
