package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/ctransport"
)

// sanitized compiles a program as users do to find their own mistakes: with
// AddressSanitizer, which reports leaks at exit.
func sanitized(t *testing.T, source string) string {
	t.Helper()
	const flag = "-fsanitize=address"
	empty := filepath.Join(t.TempDir(), "empty.c")
	require.NoError(t, os.WriteFile(empty, []byte("int main(void) { return 0; }\n"), 0o600))
	if out, err := exec.Command("cc", flag, "-o", filepath.Join(t.TempDir(), "empty"),
		empty).CombinedOutput(); err != nil {
		t.Skipf("the compiler has no AddressSanitizer: %s", out)
	}
	return program(t, source, flag)
}

// readmeProgram returns the C program that README shows, as a file.
func readmeProgram(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, begun, found := strings.Cut(string(text), "<!-- snippet: c -->\n```c\n")
	require.True(t, found, "the README has no C program")
	source, _, _ := strings.Cut(begun, "```\n")
	path := filepath.Join(t.TempDir(), "readme.c")
	require.NoError(t, os.WriteFile(path, []byte(source), 0o600))
	return path
}

// What libshunt holds when a process ends is within reach, so that a leak that
// AddressSanitizer reports is the program's own.
func TestAddressSanitizerReportsNothing(t *testing.T) {
	readme := readmeProgram(t)
	plugin, err := ctransport.Build(t.TempDir())
	require.NoError(t, err)
	t.Setenv("ASAN_OPTIONS", "detect_leaks=1")
	for _, carrier := range []string{"", "shared:" + plugin} {
		for _, c := range []struct {
			source string
			args   []string
		}{{source: readme}, {source: "test/collectives.c"}, {"test/leaks.c", []string{"8"}}, {source: "test/failure.c"}} {
			t.Run(filepath.Base(c.source)+" "+filepath.Base(carrier), func(t *testing.T) {
				if carrier != "" {
					t.Setenv("SHUNT_TRANSPORTS", carrier+",shm")
				}
				succeed(t, 2, sanitized(t, c.source), c.args...)
			})
		}
	}
}
