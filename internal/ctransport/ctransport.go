// Package ctransport builds transports written in C for tests: a complete one
// in plain C99 (c99/), which proves that the ABI can be implemented from its
// headers alone, and a set of broken ones (bad/), each refused for one reason.
// They are compiled with cc; nothing here loads them.
package ctransport

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/shunt-ccl/shunt/internal/builttest"
)

// Build compiles the C99 transport into dir and returns the path of the
// shared object.
func Build(dir string) (string, error) {
	return compile(dir, "shunt-transport-c99.so", "internal/ctransport/c99/shunt_c99.c")
}

// Flaw is one way to break the contract.
type Flaw struct {
	Name  string // as in bad/bad.c; "TEXT" is a text file
	Wrong string // what the refusal says
}

// Refused returns the flaws that are seen when the object is opened.
func Refused() []Flaw {
	return []Flaw{
		{"TEXT", `it is not a shared object: it begins with "This is not a sh"`},
		{"NO_SYMBOL", "it has no symbol shunt_transport_v1_table"},
		{"UNRESOLVED", "undefined symbol: a_function_of_no_library"},
		{"MAGIC", "its table has magic 0102030405060708"},
		{"OLD_VERSION", "speaks contract version 0.1, this host speaks 1."},
		{"OLDER_MINOR", "speaks contract version 1.0, this host speaks 1."},
		{"NEW_VERSION", "speaks contract version 2.1, this host speaks 1."},
		{"SHORT_TABLE", "its table is truncated: it says 64 bytes"},
		{"CUT_TABLE", "the symbol has 24"},
		{"NO_NAME", "its table's name: it is null"},
		{"BAD_NAME", `transport name "Not A Name" is not made of a-z, 0-9 and _`},
		{"LONG_NAME", "its table's name: it is longer than 64 bytes"},
		{"NO_MEMORY", "its table names 0 memory kinds, want 1 to 16"},
		{"NULL_KINDS", "its table's memory kinds are null"},
		{"NO_OPEN", "its table has no function open"},
		{"NO_PREPARE", "its table has no function prepare, which feature plans needs"},
	}
}

// Misbehaving returns the flaws that are seen when the transport is used.
func Misbehaving() []Flaw {
	return []Flaw{
		{"MANY_ALGORITHMS", "1000 algorithms, want at most 32"},
		{"ENDLESS_NAME", "the name of algorithm 0: it is longer than 63 bytes"},
		{"NAN_COST", "latency NaN"},
		{"NO_ENDPOINT", "it succeeded without an endpoint"},
		{"BAD_STATUS", "status 4711, which is unknown: no such code"},
		{"NEGATIVE_STATUS", "status -1, which is unknown: less than nothing"},
		{"MANY_IMAGES", "65 images at"},
		{"NULL_IMAGES", "1 images at"},
		{"NO_IMAGE", `image "image" of 4 bytes at`},
		{"MANY_TEMPS", "the plan has 2147483648 temporaries, want at most"},
		{"MANY_REGIONS", "1000000 regions"},
		{"NULL_REGIONS", "1 regions at"},
		{"BIG_REGION", "4096 bytes at offset 0 do not fit the handle's 100 bytes"},
		{"MANY_STEPS", "2147483648 steps, want at most 32768"},
		{"NULL_STEPS", "1 steps at a null address"},
		{"BAD_INDEX", "operand out of range"},
		{"NO_PLAN", "it succeeded without a plan"},
		{"NO_MESSAGE", "it left no message"},
		{"ENDLESS_MESSAGE", ": " + strings.Repeat("o", 512)},
		{"LONG_MESSAGE", ": " + strings.Repeat("o", 512)},
	}
}

// Accepted returns variations that a host must accept.
func Accepted() []string { return []string{"NOTHING", "NEWER_MINOR"} }

// BuildBad makes the shared object with the named flaw in dir.
func BuildBad(dir, name string) (string, error) {
	if name == "TEXT" {
		path := filepath.Join(dir, "text.so")
		return path, os.WriteFile(path, []byte("This is not a shared object, whatever its name says.\n"), 0o755)
	}
	return compile(dir, "bad-"+name+".so", "internal/ctransport/bad/bad.c", "-DBAD="+name)
}

// BuildHanging makes a shared object that does not return from being loaded, in a constructor.
func BuildHanging(dir string) (string, error) {
	return compile(dir, "hanging.so", "internal/ctransport/stuck/hanging.c")
}

// BuildStuck makes a shared object of the C99 transport that is stuck on rank 1 in
// "supports", "open", "prepare", "close", a "native" function or the "start" of one, or whose native
// function "fails" with status 12345, or that names an algorithm without an end
// ("endless").
func BuildStuck(dir, phase string) (string, error) {
	return compile(dir, "stuck-"+phase+".so", "internal/ctransport/stuck/stuck.c", "-DSTUCK="+strings.ToUpper(phase))
}

func compile(dir, name, source string, flags ...string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, name)
	args := append([]string{
		"-std=c99", "-pedantic", "-Wall", "-Wextra", "-O2", "-shared", "-fPIC",
		"-I", filepath.Join(root, "plugin"), "-o", out,
	}, flags...)
	text, err := builttest.Command("cc", append(args, filepath.Join(root, source))...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cc %s: %w\n%s", source, err, text)
	}
	return out, nil
}

// moduleRoot returns the folder of go.mod above the working directory, which for a
// test is its package's.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no go.mod above the working directory")
		}
		dir = parent
	}
}
