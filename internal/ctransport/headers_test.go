package ctransport

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/builttest"
)

// strict are the warnings that an author may have made errors.
var strict = []string{"-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-pedantic", "-Werror", "-I../../plugin"}

func compiler(t *testing.T, name string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("no compiler: %s is not installed", name)
	}
	return name
}

// A header needs no other one before it and no macro, and warns of nothing.
func TestHeadersAreStrict(t *testing.T) {
	for _, c := range []struct {
		compiler, suffix string
		standards        []string
		headers          []string
	}{
		{"cc", ".c", []string{"c90", "c99", "c11"}, []string{"shunt_tables.h", "shunt_transport.h"}},
		{"cc", ".c", []string{"c99", "c11", "gnu11"}, []string{"shunt_ring.h"}},
		{"c++", ".cc", []string{"c++11", "c++20"}, []string{"shunt_tables.h", "shunt_transport.h", "shunt_ring.h"}},
	} {
		for _, header := range c.headers {
			for _, standard := range c.standards {
				t.Run(header+"/"+standard, func(t *testing.T) {
					source := filepath.Join(t.TempDir(), "include"+c.suffix)
					text := "#include <" + header + ">\nint one(void);\nint one(void) { return 1; }\n"
					require.NoError(t, os.WriteFile(source, []byte(text), 0o644))
					args := append([]string{"-std=" + standard, "-O2", "-c", "-o", source + ".o", source}, strict...)
					output, err := builttest.Command(compiler(t, c.compiler), args...).CombinedOutput()
					require.NoError(t, err, "%s", output)
				})
			}
		}
	}
}

// Authors look for races in their engines, and the sanitizer of threads follows what the ring's header does.
func TestRingHasNoFence(t *testing.T) {
	source := filepath.Join(t.TempDir(), "ring.c")
	text := "#include <shunt_ring.h>\nvoid *next = (void *)shunt_ring_next, *done = (void *)shunt_ring_done;\n"
	require.NoError(t, os.WriteFile(source, []byte(text), 0o644))
	output, err := builttest.Command(compiler(t, "cc"), "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror",
		"-fsanitize=thread", "-I../../plugin", "-c", "-o", source+".o", source).CombinedOutput()
	require.NoError(t, err, "%s", output)
}
