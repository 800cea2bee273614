package process

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/builttest"
)

// The window is a few instructions wide. A runtime that waits in it makes the race certain: without a timer the world
// stands still for a minute, with one no longer than it takes to fall due.
func TestBoundStops(t *testing.T) {
	dir := t.TempDir()
	root, err := builttest.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "runtime", "proc.go")
	text, err := os.ReadFile(source)
	require.NoError(t, err)
	const window = "\t// As soon as we switch to _Gsyscall, we are in danger of losing our P.\n"
	if !strings.Contains(string(text), window) {
		t.Skip("needs: a Go runtime that enters system calls as 1.26 does")
	}
	delayed := filepath.Join(dir, "proc.go")
	wait := "\tfor range 30 {\n\t\tprocyield(1000)\n\t}\n"
	require.NoError(t, os.WriteFile(delayed, []byte(strings.Replace(string(text), window, wait+window, 1)), 0o600))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{source: delayed}})
	require.NoError(t, err)
	for from, to := range map[string]string{"testdata/rounds/main.go": "main.go", "stopworld.go": "stopworld.go"} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		text = bytes.Replace(text, []byte("package process"), []byte("package main"), 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, to), text, 0o600))
	}
	overlay, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "rounds")
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))
	out, err := builttest.Command("go", "build", "-overlay", overlay, "-o", program,
		filepath.Join(dir, "main.go"), filepath.Join(dir, "stopworld.go")).CombinedOutput()
	require.NoError(t, err, string(out))

	run := func(limit time.Duration, arguments ...string) (longest time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		out, err := exec.CommandContext(ctx, program, arguments...).Output()
		if ctx.Err() != nil {
			return limit
		}
		require.NoError(t, err)
		longest, err = time.ParseDuration(strings.TrimSpace(string(out)))
		require.NoError(t, err)
		return longest
	}
	if longest := run(5 * time.Second); longest < 2*time.Second {
		t.Skipf("needs: a Go runtime that stops the world late; without a timer this one took at most %v", longest)
	}
	assert.Less(t, run(2*time.Minute, "bounded"), 30*time.Second, "a busy machine may be late, but not by half a minute")
}
