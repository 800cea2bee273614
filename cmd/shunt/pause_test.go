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
