package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
)

// A report may be as long as the plans of many ranks are.
func TestLongReport(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var report string
	require.NoError(t, askRanks(ctx, "long", nil, launch.Job{World: 1, Label: "test"}, &report, io.Discard))
	require.Len(t, report, longReport)
}

const longReport = 40 << 20

func init() {
	tasks["long"] = func(_ context.Context, _ []byte, report io.Writer) error {
		return json.NewEncoder(report).Encode(strings.Repeat("x", longReport))
	}
}

// Commands that start ranks of their own say what they lack where /proc is not mounted.
func TestCommandsWithoutProc(t *testing.T) {
	const hide = `umount -l /proc && exec "$@"`
	if out, err := exec.Command("unshare", "--mount", "sh", "-c", hide, "sh", "true").CombinedOutput(); err != nil {
		t.Skipf("a mount namespace: %v: %s", err, out)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	for _, command := range []string{"bench", "tune", "doctor"} {
		out, err := exec.Command("unshare", "--mount", "sh", "-c", hide, "sh", self, command).CombinedOutput()
		require.Error(t, err, "%s: %s", command, out)
		require.Contains(t, string(out), "needs /proc to be mounted", command)
	}
}

// A rank that an interrupt ends is never seen by a command that does not yet know of it.
func TestInterruptsAreNotedFirst(t *testing.T) {
	for range 300 {
		ctx, stop := interruptible(t.Context())
		received, end := signals(ctx)
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGUSR1))
		require.Equal(t, syscall.SIGUSR1, <-received)
		require.NoError(t, ctx.Err()) // it ends no command
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
		require.Equal(t, syscall.SIGINT, <-received)
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		end()
		stop()
	}
}
