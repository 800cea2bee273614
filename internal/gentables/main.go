// Command gentables writes the Go, C and Python forms of plugin/tables.json.
// Run it from the repository root, by `make generate`.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/format"
	"log"
	"os"
	"strings"

	"github.com/shunt-ccl/shunt/internal/generated"
)

type value struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
	Bytes int    `json:"bytes"`
	Doc   string `json:"doc"`
}

type enum struct {
	Name    string   `json:"name"`
	C       string   `json:"c"`
	CPrefix string   `json:"cprefix"`
	CInfix  string   `json:"cinfix"`
	Py      *string  `json:"py"`
	Size    int      `json:"size"`
	Flags   bool     `json:"flags"`
	Extra   []string `json:"extra"`
	Doc     string   `json:"doc"`
	Values  []value  `json:"values"`
}

const notice = "Code generated from plugin/tables.json by gentables. DO NOT EDIT."

func main() {
	log.SetFlags(0)
	raw, err := os.ReadFile("plugin/tables.json")
	if err != nil {
		log.Fatal(err)
	}
	var tables struct{ Enums []enum }
	if err := json.Unmarshal(raw, &tables); err != nil {
		log.Fatalf("plugin/tables.json: %v", err)
	}
	source, err := format.Source(goTables(tables.Enums))
	if err != nil {
		log.Fatalf("generated Go does not parse: %v", err)
	}
	write("plugin/tables_gen.go", source)
	write("plugin/shunt_tables.h", cTables(tables.Enums))
	write("python/shunt/_tables.py", pyTables(tables.Enums))
}

func write(path string, data []byte) {
	if err := generated.Write(path, data); err != nil {
		log.Fatal(err)
	}
}

// camel turns a table name such as all_gather_v into AllGatherV.
func camel(name string) string {
	if name == "ok" {
		return "OK"
	}
	var b strings.Builder
	for _, part := range strings.Split(name, "_") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

// goName returns the constant's Go name: error codes and collectives read well
// alone or as errors, the others carry their type's name.
func goName(e enum, v value) string {
	switch e.Name {
	case "Code", "Collective":
		return camel(v.Name)
	case "DType":
		return camel(v.Name)
	case "StepKind":
		return "Step" + camel(v.Name)
	}
	return e.Name + camel(v.Name)
}

func goTables(enums []enum) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// %s\n\npackage plugin\n\n", notice)
	for _, e := range enums {
		unsigned := "uint"
		if e.Name == "Code" {
			unsigned = "int"
		}
		fmt.Fprintf(&b, "// %s\ntype %s %s%d\n\nconst (\n", e.Doc, e.Name, unsigned, e.Size)
		for _, v := range e.Values {
			fmt.Fprintf(&b, "\t// %s: %s.\n\t%s %s = %d\n", goName(e, v), v.Doc, goName(e, v), e.Name, v.Value)
		}
		b.WriteString(")\n\n")
		lower := strings.ToLower(e.Name[:1]) + e.Name[1:]
		fmt.Fprintf(&b, "var %sNames = map[%s]string{\n", lower, e.Name)
		for _, v := range e.Values {
			fmt.Fprintf(&b, "\t%s: %q,\n", goName(e, v), v.Name)
		}
		b.WriteString("}\n\n")
		fmt.Fprintf(&b, "var %sDocs = map[%s]string{\n", lower, e.Name)
		for _, v := range e.Values {
			fmt.Fprintf(&b, "\t%s: %q,\n", goName(e, v), v.Doc)
		}
		b.WriteString("}\n\n")
		fmt.Fprintf(&b, "// %ss lists every %s in the order of its value.\nfunc %ss() []%s {\n\treturn []%s{", e.Name, e.Name,
			e.Name, e.Name, e.Name)
		for i, v := range e.Values {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(goName(e, v))
		}
		b.WriteString("}\n}\n\n")
		if !e.Flags {
			fmt.Fprintf(&b, "// String returns the name used in messages, options and files.\nfunc (v %s) String() string { return nameOf(%sNames, v) }\n\n", e.Name, lower)
		}
		fmt.Fprintf(&b, "// Doc returns the table's one-line explanation.\nfunc (v %s) Doc() string { return %sDocs[v] }\n\n",
			e.Name, lower)
		for _, x := range e.Extra {
			fmt.Fprintf(&b, "var %s%s = [...]int64{\n", lower, camel(x))
			for _, v := range e.Values {
				fmt.Fprintf(&b, "\t%s: %d,\n", goName(e, v), v.Bytes)
			}
			b.WriteString("}\n\n")
		}
	}
	return b.Bytes()
}

// width is that of a line.
const width = 120

// explained returns a definition with its comment, behind it where both fit in a line, above it otherwise.
func explained(definition, open, text, more string) string {
	if line := definition + " " + open + text; len(line) <= width {
		return line + "\n"
	}
	indent := definition[:len(definition)-len(strings.TrimLeft(definition, " "))]
	return wrapped(indent+strings.TrimLeft(open, " "), text, indent+more) + definition + "\n"
}

// wrapped returns a text's lines, the first behind open and the others behind more. The end of
// a comment stays with the word before it.
func wrapped(open, text, more string) string {
	line, lines := open, ""
	text, closed := strings.CutSuffix(text, " */")
	words := strings.Fields(text)
	if closed {
		words[len(words)-1] += " */"
	}
	for i, word := range words {
		switch {
		case i == 0:
			line += word
		case len(line)+1+len(word) <= width:
			line += " " + word
		default:
			lines, line = lines+line+"\n", more+word
		}
	}
	return lines + line + "\n"
}

func cTables(enums []enum) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "/* %s */\n#ifndef SHUNT_TABLES_H\n#define SHUNT_TABLES_H\n\n#include <stdint.h>\n\n", notice)
	for _, e := range enums {
		signed := "uint"
		if e.Name == "Code" {
			signed = "int"
		}
		b.WriteString(wrapped("/* ", e.Doc+" */", "   "))
		fmt.Fprintf(&b, "typedef %s%d_t %s;\n", signed, e.Size, e.C)
		if e.Size == 64 {
			for _, v := range e.Values {
				definition := fmt.Sprintf("#define %s%s UINT64_C(%d)", e.CPrefix+e.CInfix, strings.ToUpper(v.Name), v.Value)
				b.WriteString(explained(definition, "/* ", v.Doc+" */", "   "))
			}
			b.WriteString("\n")
			continue
		}
		b.WriteString("enum {\n")
		for i, v := range e.Values {
			definition := fmt.Sprintf("  %s%s = %d", e.CPrefix+e.CInfix, strings.ToUpper(v.Name), v.Value)
			if i < len(e.Values)-1 { // C90 and C++98 have no comma behind the last one
				definition += ","
			}
			b.WriteString(explained(definition, "/* ", v.Doc+" */", "   "))
		}
		b.WriteString("};\n\n")
	}
	b.WriteString("#endif\n")
	return b.Bytes()
}

// pythonBases are Python's own exceptions for what a code means: programs catch
// those too.
var pythonBases = map[string]string{"invalid_argument": "ValueError", "timeout": "TimeoutError",
	"out_of_memory": "MemoryError"}

func pyTables(enums []enum) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\"\"\"The contract's tables: error codes, dtypes, reduction ops and collectives.\"\"\"\n\nimport builtins\nimport enum\n", notice)
	for _, e := range enums {
		if e.Py == nil {
			continue
		}
		fmt.Fprintf(&b, "\n\nclass %s(enum.IntEnum):\n%s\n", *e.Py, wrapped("    \"\"\"", e.Doc+"\"\"\"", "    "))
		for _, v := range e.Values {
			member := fmt.Sprintf("    %s = %d", strings.ToUpper(v.Name), v.Value)
			b.WriteString(explained(member, " # ", v.Doc, "# "))
		}
		for _, x := range e.Extra {
			fmt.Fprintf(&b, "\n\n%s_%s = {\n", strings.ToUpper(*e.Py), strings.ToUpper(x))
			for _, v := range e.Values {
				fmt.Fprintf(&b, "    %s.%s: %d,\n", *e.Py, strings.ToUpper(v.Name), v.Bytes)
			}
			b.WriteString("}\n")
		}
	}
	b.WriteString("\n\nclass ShuntError(RuntimeError):\n    \"\"\"Any failure that Shunt reports; `code` is its Code.\"\"\"\n\n    code = Code.INTERNAL\n")
	for _, e := range enums {
		if e.Name != "Code" {
			continue
		}
		for _, v := range e.Values[1:] {
			bases := "ShuntError"
			if known := pythonBases[v.Name]; known != "" {
				bases += ", builtins." + known
			}
			fmt.Fprintf(&b, "\n\nclass %sError(%s):\n    \"\"\"%s\"\"\"\n\n    code = Code.%s\n", camel(v.Name), bases, v.Doc,
				strings.ToUpper(v.Name))
		}
		b.WriteString("\n\nERRORS = {\n")
		for _, v := range e.Values[1:] {
			fmt.Fprintf(&b, "    Code.%s: %sError,\n", strings.ToUpper(v.Name), camel(v.Name))
		}
		b.WriteString("}\n")
	}
	return b.Bytes()
}
