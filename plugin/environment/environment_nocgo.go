//go:build !cgo

package environment

import "os"

// All returns all variables, "NAME=value" each. The caller owns them.
func All() []string { return os.Environ() } // no library in C is in the process

// Get returns the value of a variable, or "".
func Get(name string) string { return os.Getenv(name) }
