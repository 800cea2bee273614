package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// In a network namespace of its own, which has not even a loopback interface that is up, ranks meet all the same.
func TestConformanceWithoutANetwork(t *testing.T) {
	if out, err := exec.Command("unshare", "--net", "true").CombinedOutput(); err != nil {
		t.Skipf("a network namespace: %v: %s", err, out)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command("unshare", "--net", self, "conformance", "--short", "-n", "2", "--filter", "barrier")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
