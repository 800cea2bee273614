// Command gendocs writes the pages of docs/ that are generated from code. Run
// it from the repository root, by `make generate`.
package main

import (
	"log"
	"os"

	"github.com/shunt-ccl/shunt/host/option"
)

func main() {
	log.SetFlags(0)
	if err := os.WriteFile("docs/options.md", []byte(option.Markdown()), 0o644); err != nil {
		log.Fatal(err)
	}
}
