package environment

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// What package os sets and removes is seen, and so are the variables of the start.
func TestVariables(t *testing.T) {
	const name = "SHUNT_TEST_ENVIRONMENT"
	require.Empty(t, Get(name))
	for _, value := range []string{"one=1", "", "two"} {
		t.Setenv(name, value)
		require.Equal(t, value, Get(name))
		require.Contains(t, All(), name+"="+value)
	}
	require.NoError(t, os.Unsetenv(name))
	require.Empty(t, Get(name))
	want, got := os.Environ(), All()
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(t, want, got)
}
