// Command genpeers writes the tables of docs/benchmarks.md from bench/data/open_mpi.json, which `make bench-peers`
// measures.
package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"github.com/shunt-ccl/shunt/internal/generated"
	"github.com/shunt-ccl/shunt/internal/peertable"
)

const (
	from  = "bench/data/open_mpi.json"
	to    = "docs/benchmarks.md"
	begin = "<!-- table: internal/genpeers -->\n"
	end   = "<!-- end of table -->\n"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "genpeers:", err)
		os.Exit(1)
	}
}

func run() error {
	results, err := peertable.Read(from)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	page, err := os.ReadFile(to)
	if err != nil {
		return err
	}
	i, j := bytes.Index(page, []byte(begin)), bytes.Index(page, []byte(end))
	if i < 0 || j < i {
		return fmt.Errorf("%s has no markers %q … %q", to, begin, end)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "Measured on %s with %d CPUs.\n\n", results.Machine, results.CPUs)
	results.Tables(&text)
	return generated.Write(to, slices.Concat(page[:i+len(begin)], text.Bytes(), page[j:]))
}
