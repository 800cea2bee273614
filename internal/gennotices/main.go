// Command gennotices writes THIRD_PARTY_NOTICES: the modules whose code is linked into
// libshunt.so, the command shunt and the transports' processes, each with its version,
// where its source is, and its license. Run it from the repository root, by `make generate`.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/internal/generated"
)

const file = "THIRD_PARTY_NOTICES"

// linked are the packages whose programs are handed to users.
var linked = []string{"./capi", "./capi/...", "./cmd/shunt", "./transports/.../process", "./transports/.../shared"}

type module struct {
	Path, Version, Dir string
	Main               bool
	Replace            *module
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("gennotices: ")
	modules, err := dependencies(linked...)
	if err != nil {
		log.Fatal(err)
	}
	text, err := notices(modules)
	if err != nil {
		log.Fatal(err)
	}
	if err := generated.Write(file, text); err != nil {
		log.Fatal(err)
	}
}

// dependencies returns the modules of others that the packages are linked with on Linux.
func dependencies(packages ...string) ([]module, error) {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Module"}, packages...)...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	found := map[string]module{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ Module *module }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Module != nil && !p.Module.Main {
			found[p.Module.Path] = *p.Module
		}
	}
	var modules []module
	for _, m := range found {
		if m.Replace != nil {
			return nil, fmt.Errorf("module %s is replaced: say here where the source of that is", m.Path)
		}
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b module) int { return cmp.Compare(a.Path, b.Path) })
	return modules, nil
}

// legal are the files of a module that go with its code.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// notices returns the content of the file.
func notices(modules []module) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `Shunt is under the Apache License 2.0 (LICENSE). Its programs and libshunt.so are linked
with the software below, unmodified, each under its own license. Written by make generate.

`)
	for _, m := range modules {
		fmt.Fprintf(&b, "    %s %s\n", m.Path, m.Version)
	}
	fmt.Fprintln(&b, "    Go, the standard library and the runtime")
	for _, m := range modules {
		texts, err := texts(m.Dir)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", m.Path, err)
		}
		heading(&b, m.Path+" "+m.Version)
		fmt.Fprintf(&b, "Source: %s\n", source(m))
		if bytes.Contains(texts, []byte("Mozilla Public License")) {
			fmt.Fprintln(&b, "Under the Mozilla Public License 2.0, which entitles you to its source code form: it is there.")
		}
		b.WriteByte('\n')
		b.Write(texts)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	texts, err := texts(strings.TrimSpace(string(root)))
	if err != nil {
		return nil, fmt.Errorf("go: %w", err)
	}
	heading(&b, "Go, the standard library and the runtime")
	fmt.Fprint(&b, "Source: https://go.dev/dl/\n\n")
	b.Write(texts)
	return b.Bytes(), nil
}

func heading(b *bytes.Buffer, title string) {
	fmt.Fprintf(b, "\n%s\n%s\n%s\n\n", strings.Repeat("=", 80), title, strings.Repeat("=", 80))
}

// source returns the address of a module's code.
func source(m module) string {
	if parts := strings.Split(m.Path, "/"); parts[0] == "github.com" && len(parts) == 3 {
		return "https://" + m.Path + "/tree/" + strings.TrimSuffix(m.Version, "+incompatible")
	}
	return "https://pkg.go.dev/" + m.Path + "@" + m.Version
}

// texts returns the legal files of a folder, one behind the other; an error if it has none.
func texts(dir string) ([]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, entry := range entries {
		if !entry.Type().IsRegular() || !legal.MatchString(entry.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		for line := range strings.Lines(strings.ReplaceAll(string(text), "\r\n", "\n")) {
			b.WriteString(strings.TrimRight(line, " \t\n\f") + "\n")
		}
	}
	if b.Len() == 0 {
		return nil, fmt.Errorf("no license in %s", dir)
	}
	return b.Bytes(), nil
}
