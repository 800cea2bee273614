package postbox_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/builttest"
	"github.com/shunt-ccl/shunt/tests/conformance"
)

// The memory of the example, in C++. Its table is found, whatever is done to names and to what is not declared as
// exported, and no strict compiler warns of it.
func TestConformanceInCplusplus(t *testing.T) {
	if _, err := exec.LookPath("c++"); err != nil {
		t.Skip("no compiler: c++ is not installed")
	}
	for _, flags := range [][]string{{"-std=c++11"}, {"-std=c++20", "-fvisibility=hidden"}} {
		t.Run(flags[0], func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "scratch.so")
			args := append([]string{"-shared", "-fPIC", "-O2", "-I../../../plugin", "-o", path, "cplusplus/scratch.cc",
				"-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-pedantic", "-Werror"}, flags...)
			output, err := builttest.Command("c++", args...).CombinedOutput()
			require.NoError(t, err, "%s", output)
			conformance.Test(t, conformance.Config{Transport: "shared:" + path, Worlds: []int{2}, Short: true})
		})
	}
}
