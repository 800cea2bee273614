package environment

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSources(t *testing.T) {
	const name = "SHUNT_TEST_ENVIRONMENT"
	t.Setenv(name, "of Go")
	require.Equal(t, "of Go", Get(name))
	require.Equal(t, os.Environ(), All())
	now := []string{"=odd", "ALONE", name + "=one=1", name + "=two", "EMPTY="}
	Use(func() []string { return slices.Clone(now) })
	t.Cleanup(func() { source.Store(nil) })
	require.Equal(t, now, All())
	for variable, want := range map[string]string{name: "one=1", "EMPTY": "", "ALONE": "", "NONE": "", "HOME": ""} {
		require.Equal(t, want, Get(variable), variable)
	}
	now = nil
	require.Empty(t, Get(name))
}
