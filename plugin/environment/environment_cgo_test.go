//go:build cgo

package environment_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin/environment"
	"github.com/shunt-ccl/shunt/plugin/environment/environmenttest"
)

// What C sets is seen, whether package os knows the variable or not.
func TestVariablesOfC(t *testing.T) {
	t.Setenv("SHUNT_TEST_KNOWN", "before")
	for _, name := range []string{"SHUNT_TEST_KNOWN", "SHUNT_TEST_NEW"} {
		environmenttest.Set(t, name, "of C")
		require.Equal(t, "of C", environment.Get(name))
		require.Contains(t, environment.All(), name+"=of C")
	}
}
