// Package generated writes the files that generators make. Nothing of it is linked into
// the library or the command.
package generated

import (
	"bytes"
	"os"
	"path/filepath"
)

// Write gives a file its text. A file that has it already is left alone, and another is
// replaced at once, so that a compiler that runs at the same time sees one or the other.
func Write(path string, text []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }() // it is gone unless something failed
	_, err = file.Write(text)
	if err == nil {
		err = file.Chmod(0o644)
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	return err
}
