//go:build cgo

package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/environment/environmenttest"
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

// A program in C or Python sets variables after it has loaded the library: package os has them as they were before.
func TestPluginInheritsVariablesOfC(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "p") //nolint:usetesting // short: paths of sockets are bounded
	require.NoError(t, err)
	defer os.RemoveAll(base)
	environmenttest.Set(t, "CUDA_VISIBLE_DEVICES", "1")
	environmenttest.Set(t, "TMPDIR", base)
	c := start(t, "probe")
	require.Equal(t, base, filepath.Dir(c.runner.dir))
	text, err := os.ReadFile("/proc/" + itoa(c.PID()) + "/environ")
	require.NoError(t, err)
	require.Subset(t, strings.Split(string(text), "\x00"), []string{"CUDA_VISIBLE_DEVICES=1", "TMPDIR=" + base})
}

// A thread of the host may block signals; a plugin, and what it starts, begins with none blocked.
func TestPluginBlocksNoSignals(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	defer write.Close()
	blocked, before := unix.Sigset_t{Val: [16]uint64{1 << (unix.SIGUSR1 - 1)}}, unix.Sigset_t{}
	require.NoError(t, unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, &before))
	cmd := exec.Command("grep", "SigBlk", "/proc/self/status")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = write, os.Stderr, []*os.File{write}
	pid, err := startProcess(cmd)
	require.NoError(t, errors.Join(err, unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)))
	text := make([]byte, 100)
	n, err := read.Read(text)
	require.NoError(t, err)
	require.Equal(t, "SigBlk:\t0000000000000000\n", string(text[:n]))
	_, err = unix.Wait4(pid, nil, 0, nil)
	require.NoError(t, err)
}

// A program that ignores SIGCHLD, or waits for every child, takes the plugin's status away. It is then unknown whether
// it ended well, and closing it is no failure.
func TestPluginThatIsReapedByOthers(t *testing.T) {
	signal.Ignore(unix.SIGCHLD)
	defer func() { // Reset alone leaves the signal ignored
		noted := make(chan os.Signal, 1)
		signal.Notify(noted, unix.SIGCHLD)
		signal.Stop(noted)
	}()
	c := start(t, "probe")
	require.NoError(t, open(t, c).Close())
	require.NoError(t, c.Close())
	c = start(t, "probe")
	require.NoError(t, unix.Kill(c.PID(), unix.SIGKILL))
	within(t, 2*time.Second, c.Done())
	require.ErrorIs(t, c.Err(), plugin.PluginDied)
	require.NoError(t, c.Close())
}

// A file system that does not respond can hold an execution, and the thread that began it, without end. The
// start ends in time all the same, and what is executed later is killed.
func TestStartEndsInTimeWhereExecutionHangs(t *testing.T) {
	defer func() { execute = startProcess }()
	for says, c := range map[string]struct {
		timeout time.Duration
		cancel  bool
		code    plugin.Code
	}{
		"did not finish its start within 2s: it has not been executed yet": {2 * time.Second, false, plugin.PluginRejected},
		"start was given up: context canceled":                             {time.Minute, true, plugin.Aborted},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		held, executed := make(chan struct{}), make(chan int, 1)
		execute = func(cmd *exec.Cmd) (int, error) {
			if c.cancel {
				cancel()
			}
			waitFor(held, time.Minute)
			pid, err := startProcess(cmd)
			executed <- pid
			return pid, err
		}
		config := testConfig("silent")
		config.StartTimeout = c.timeout
		_, err := Start(ctx, config)
		require.Empty(t, executed, "the start has not waited")
		close(held)
		pid := <-executed
		eventually(t, 30*time.Second, "the process is killed", func() bool { return gone(pid) })
		cancel()
		require.ErrorContains(t, err, says)
		require.ErrorIs(t, err, c.code)
	}
}
