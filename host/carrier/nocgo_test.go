package carrier

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/internal/builttest"
)

// A program that imports the host is built with cgo: without, the compiler says so, beside what else it misses. Only
// the file that makes it say so is compiled here.
func TestTheHostNeedsCgo(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no Go toolchain to compile a file with: the command go is not installed")
	}
	for _, dir := range []string{".", "../../cuda"} {
		build := builttest.Command("go", "build", filepath.Join(dir, "nocgo.go"))
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		text, err := build.CombinedOutput()
		require.Error(t, err, dir)
		require.Contains(t, string(text), "undefined: shunt_needs_cgo_and_a_C_compiler", dir)
	}
}
