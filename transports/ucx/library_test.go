package ucx

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/builttest"
	"github.com/shunt-ccl/shunt/plugin"
)

// A library that is none, lacks a function, is too old or is not there is a reason, which names it.
func TestWrongLibraries(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	object := func(name, source string) string {
		path := filepath.Join(dir, name)
		out, err := builttest.Command("cc", "-shared", "-fPIC", "-o", path, file(name+".c", source)).CombinedOutput()
		require.NoError(t, err, string(out))
		return path
	}
	old := "void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) { *a = 1; *b = 9; *c = 0; }\n"
	for _, name := range symbols()[1:] {
		old += "void " + name + "(void) {}\n"
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "missing.so"): "no such file or directory",
		file("text.so", "no library"):    "text.so",
		object("empty.so", "int x;"):     "it has no ucp_get_version; UCX 1.11 is the oldest that serves",
		object("old.so", old):            "is UCX 1.9; 1.11 is the oldest that serves",
		"libshunt-no-such-library.so":    "cannot open shared object file",
	} {
		t.Setenv(Variable, path)
		s := Transport{}.Supports(plugin.Request{Collective: plugin.Barrier, World: 2, Hosts: 2})
		assert.Empty(t, s.Algorithms)
		assert.Contains(t, s.Reason, Variable+": ")
		assert.Contains(t, s.Reason, want)
		_, err := Transport{}.Open(t.Context(), plugin.OpenConfig{World: 2})
		assert.Equal(t, plugin.Unsupported, plugin.CodeOf(err))
		assert.ErrorContains(t, err, want)
	}
}

// What an endpoint cannot be is an error that says so.
func TestOpenRefuses(t *testing.T) {
	for want, c := range map[string]plugin.OpenConfig{
		"rank 2 is not in a world of 2 ranks":    {Rank: 2, World: 2},
		"rank -1 is not in a world of 2 ranks":   {Rank: -1, World: 2},
		"want a world of 1 to 256":               {World: 257},
		"cuda memory cannot be served":           {World: 2, Memory: plugin.MemoryKindCuda},
		`unknown option "speed"; it has library`: {World: 2, Options: map[string]string{"speed": "fast"}},
	} {
		_, err := Transport{}.Open(t.Context(), c)
		assert.Equal(t, plugin.InvalidArgument, plugin.CodeOf(err))
		assert.ErrorContains(t, err, want)
	}
}
