package process

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// startHost starts a process that has a plugin, and returns the pids of both.
func startHost(t *testing.T) (host, child int) {
	t.Helper()
	config := testConfig("host")
	c := exec.Command(config.Path)
	c.Env = append(os.Environ(), config.Env...)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	child, err = strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	return c.Process.Pid, child
}

// A job that is suspended has all its processes stopped, one after the other, and goes on in the same way. The time in
// which the host was stopped is no time in which its plugin did not respond.
func TestPluginOutlivesAStopOfItsHost(t *testing.T) {
	host, child := startHost(t)
	require.NoError(t, unix.Kill(child, unix.SIGSTOP))
	time.Sleep(700 * time.Millisecond) // a ping is under way: they are half a second apart
	require.NoError(t, unix.Kill(host, unix.SIGSTOP))
	time.Sleep(2 * time.Second) // the stop, longer than a plugin that is stopped may take
	require.NoError(t, unix.Kill(host, unix.SIGCONT))
	time.Sleep(50 * time.Millisecond) // the host looks before the plugin goes on
	require.NoError(t, unix.Kill(child, unix.SIGCONT))
	time.Sleep(2 * time.Second) // more pings
	require.False(t, gone(child), "the plugin was killed")
}
