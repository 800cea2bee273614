package main

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

var update = flag.Bool("update", false, "write testdata/bad_input.txt instead of comparing with it")

var address = regexp.MustCompile(`0x[0-9a-f]{8,}`)

// TestBadInput compares the status and message of every wrong call with the
// table in testdata/bad_input.txt: call, status, message.
func TestBadInput(t *testing.T) {
	t.Setenv("SHUNT_LIBCUDA", "libcuda-that-is-not-there.so") // the same text with and without a GPU
	results := succeed(t, 1, program(t, "test/bad_input.c"))
	got := address.ReplaceAllString(results[0].output, "ADDRESS")
	const table = "testdata/bad_input.txt"
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(table, []byte(got), 0o644))
	}
	want, err := os.ReadFile(table)
	require.NoError(t, err)
	require.Equal(t, strings.Split(string(want), "\n"), strings.Split(got, "\n"))

	// Whatever the table says, no call may succeed or be blamed on Shunt, and
	// every message is a sentence of its own.
	for _, line := range strings.Split(strings.TrimSpace(got), "\n") {
		fields := strings.Split(line, "\t")
		require.Len(t, fields, 3, line)
		require.NotContains(t, []string{plugin.OK.String(), plugin.Internal.String(), "unknown"}, fields[1], line)
		require.Greater(t, len(fields[2]), 10, line)
	}
}
