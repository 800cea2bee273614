package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// endless is a rank that reduces until it is ended. It says when it has begun, and after a call of three seconds.
func endless() int {
	c, err := host.Init(context.Background(), host.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for say := "begun"; ; {
		begun, x := time.Now(), int32(1)
		if err := c.AllReduce(unsafe.Pointer(&x), unsafe.Pointer(&x), 1, plugin.Int32, plugin.OpSum, nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if say != "" {
			fmt.Println(say)
		}
		if say = ""; time.Since(begun) > 3*time.Second {
			say = "late"
		}
	}
}

// Ctrl-Z stops the ranks of this machine also where a hostfile names it, and what continues the job continues them.
func TestStoppedHostfile(t *testing.T) {
	flags, _ := machines(t, "localhost slots=2\n")
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(self, append(flags, "sh", "-c", "trap 'kill $!; exit 0' USR1; sleep 300 & echo $$; wait")...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	defer func() { _ = c.Process.Kill() }() // unless it has ended
	pids := []int{c.Process.Pid, 0, 0}
	for i := range pids[1:] {
		_, err := fmt.Fscanln(out, &pids[1+i])
		require.NoError(t, err)
	}
	stopped := func(want bool) func() bool {
		return func() bool {
			for _, pid := range pids {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				if err != nil || strings.Contains(string(stat), ") T ") != want {
					return false
				}
			}
			return true
		}
	}
	for range 2 {
		require.NoError(t, c.Process.Signal(syscall.SIGTSTP))
		require.Eventually(t, stopped(true), 10*time.Second, time.Millisecond)
		require.NoError(t, c.Process.Signal(syscall.SIGCONT))
		require.Eventually(t, stopped(false), 10*time.Second, time.Millisecond)
	}
	require.NoError(t, c.Process.Signal(syscall.SIGUSR1))
	require.NoError(t, c.Wait())
}

// A job that was stopped, as by Ctrl-Z, does not count the time in which no rank ran.
func TestStoppedJobWarnsOfNothing(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	var stderr strings.Builder
	c := exec.Command(self, "run", "-n", "3", "--", self, "endless")
	c.Env = append(os.Environ(), "SHUNT_STALL_WARNING=2s")
	c.Stderr = &stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell that could continue it starts a job
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	defer func() { _ = c.Process.Kill() }() // unless it has ended
	lines := bufio.NewScanner(out)
	for begun := 0; begun < 3; {
		require.True(t, lines.Scan())
		if lines.Text() == "begun" {
			begun++
		}
	}
	require.NoError(t, c.Process.Signal(syscall.SIGTSTP))
	time.Sleep(4 * time.Second) // the stop
	require.NoError(t, c.Process.Signal(syscall.SIGCONT))
	require.True(t, lines.Scan())
	require.Equal(t, "late", lines.Text())
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	for lines.Scan() {
	}
	require.Error(t, c.Wait())
	require.NotContains(t, stderr.String(), "operation is waiting")
}
