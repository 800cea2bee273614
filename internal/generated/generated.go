// Package generated writes the files that generators make. Nothing of it is linked into
// the library or the command.
package generated

import (
	"bytes"
	"os"

	"github.com/shunt-ccl/shunt/internal/outfile"
)

// Write gives a file its text. A file that has it already is left alone, and another is
// replaced at once, so that a compiler that runs at the same time sees one or the other.
func Write(path string, text []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	return outfile.Write(path, text)
}
