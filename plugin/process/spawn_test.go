//go:build cgo

package process

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Libraries of the host's process open files without O_CLOEXEC: secrets, devices, and
// sockets whose peers wait for their end.
func TestPluginInheritsNoDescriptorsButItsOwn(t *testing.T) {
	fd, err := unix.Open("/etc/hostname", unix.O_RDONLY, 0) // on purpose without O_CLOEXEC
	require.NoError(t, err)
	defer unix.Close(fd)
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 300)
	require.NoError(t, err)
	defer unix.Close(high)
	c := start(t, "descriptors")
	eventually(t, 5*time.Second, "the list is complete",
		func() bool { return strings.Contains(c.runner.errLines.Tail(), "that is all") })
	var inherited []string
	for _, line := range strings.Split(c.runner.errLines.Tail(), "\n") {
		if number, _, ok := strings.Cut(strings.TrimPrefix(line, "inherited "), " "); ok &&
			strings.HasPrefix(line, "inherited ") {
			inherited = append(inherited, number)
		}
	}
	require.ElementsMatch(t, []string{"0", "1", "2", "3"}, inherited, "%s", c.runner.errLines.Tail())
}
