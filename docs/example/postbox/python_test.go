package postbox_test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/tests/conformance"
)

// The same transport in a process of another language.
func TestConformanceInPython(t *testing.T) {
	python := cmp.Or(os.Getenv("TEST_PYTHON"), "python3")
	out, err := exec.Command(python, "-c", "import grpc, grpc_tools, cryptography").CombinedOutput()
	if err != nil {
		t.Skipf("no grpcio: %s lacks grpcio, grpcio-tools or cryptography: %v %s", python, err, out)
	}
	example, err := filepath.Abs("python/postbox.py")
	require.NoError(t, err)
	python, err = exec.LookPath(python)
	require.NoError(t, err)
	plugin := filepath.Join(t.TempDir(), "postbox")
	require.NoError(t, os.WriteFile(plugin, fmt.Appendf(nil, "#!/bin/sh\nexec %q %q\n", python, example), 0o755))
	conformance.Test(t, conformance.Config{Transport: "process:" + plugin, Worlds: []int{3}, Short: true})
}
