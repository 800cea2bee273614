// Package environment reads the environment variables of this process as they are now. Where Go does not start the
// program, as in C or Python, package os has them as they were when the library was loaded, and never what the program
// sets afterwards.
package environment

import (
	"os"
	"strings"
	"sync/atomic"
)

var source atomic.Pointer[func() []string]

// Use makes All and Get read what a function returns, "NAME=value" each, instead of what package os has.
func Use(variables func() []string) { source.Store(&variables) }

// All returns all variables, "NAME=value" each. The caller owns them.
func All() []string {
	if f := source.Load(); f != nil {
		return (*f)()
	}
	return os.Environ()
}

// Get returns the value of a variable, or "".
func Get(name string) string {
	f := source.Load()
	if f == nil {
		return os.Getenv(name)
	}
	for _, entry := range (*f)() {
		if n, value, _ := strings.Cut(entry, "="); n == name { // the first one counts, as for getenv
			return value
		}
	}
	return ""
}
