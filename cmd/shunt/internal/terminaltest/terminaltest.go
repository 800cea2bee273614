// Package terminaltest makes terminals for tests of programs that behave otherwise there. Nothing else belongs here.
package terminaltest

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Open returns both ends of a new terminal, for as long as the test runs: near is where a person would sit, far is a
// program's. Where there are no pseudo-terminals the test is skipped.
func Open(t *testing.T) (near, far *os.File) {
	t.Helper()
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("pseudo-terminals are absent: %v", err)
	}
	t.Cleanup(func() { near.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(near.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(near.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { far.Close() })
	return near, far
}
