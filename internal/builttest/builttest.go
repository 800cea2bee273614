// Package builttest starts the compilers that tests need, and gives tests libshunt.so as users get it, in a directory
// that all tests of a package share. No test of what the library does belongs here.
package builttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Sources makes the result of the test that calls it depend on all sources of the module.
//
// Go keeps the results of tests, and knows by itself their code, the files that they open and the variables that they
// ask for, but nothing of what the compilers read that they start. So the Makefile passes the sum of all sources in a
// variable. What TestMain asks for before it runs the tests does not count.
func Sources() { _ = os.Getenv("SOURCES_SUM") }

// Command is exec.Command for a compiler, or another tool that reads sources.
func Command(name string, arguments ...string) *exec.Cmd {
	Sources()
	return exec.Command(name, arguments...)
}

// Library is a directory with libshunt.so, made when a test first needs it. Main removes it.
type Library struct {
	// Build is capi/build.sh, relative to the directory of the test.
	Build string
	// More builds what else belongs in the directory; nil: nothing does.
	More func(dir string) error

	once sync.Once
	dir  string
	err  error
}

// Dir returns the directory. Its libshunt.so, which libshunt.so.1 links to, is the one of SHUNT_LIBRARY, which
// `make build` has made, or is built here.
func (l *Library) Dir() (string, error) {
	Sources()
	l.once.Do(func() { l.err = l.make() })
	return l.dir, l.err
}

func (l *Library) make() (err error) {
	if l.dir, err = os.MkdirTemp("", "libshunt"); err != nil {
		return err
	}
	path := filepath.Join(l.dir, "libshunt.so")
	if made := os.Getenv("SHUNT_LIBRARY"); made == "" {
		if err := Output(exec.Command(l.Build, path)); err != nil {
			return err
		}
	} else if made, err = filepath.Abs(made); err != nil {
		return err
	} else if err := os.Symlink(made, path); err != nil {
		return err
	}
	if err := os.Symlink("libshunt.so", path+".1"); err != nil {
		return err
	}
	if l.More == nil {
		return nil
	}
	return l.More(l.dir)
}

// Main is TestMain of a package whose tests use the library: it runs them, removes the directory and exits.
func (l *Library) Main(m *testing.M) {
	status := m.Run()
	if l.dir != "" {
		_ = os.RemoveAll(l.dir) // a leftover in the temporary directory does no harm
	}
	os.Exit(status)
}

// Output runs a command. The error of one that fails has the command and all that it printed.
func Output(cmd *exec.Cmd) error {
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, text)
	}
	return nil
}
