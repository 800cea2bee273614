package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sleeper is a program that says which process it is.
const sleeper = "echo $$; exec sleep 300"

// ofOwnGroup is a script of a rank: it starts a program in a group of its own, and goes on when that has said
// something, which is $pid. What else it writes comes on descriptor 9.
func ofOwnGroup(t *testing.T, program, further string) string {
	fifo := filepath.Join(t.TempDir(), "says") + "$SHUNT_RANK"
	return "mkfifo " + fifo + "; timeout 300 sh -c '" + program + "' >" + fifo + " & exec 9<" + fifo +
		"; read pid <&9; " + further
}

// pidsIn returns the numbers that ranks have printed.
func pidsIn(t *testing.T, text string) (pids []int) {
	for _, word := range strings.Fields(text) {
		pid, err := strconv.Atoi(word)
		require.NoError(t, err, text)
		pids = append(pids, pid)
	}
	return pids
}

// What a rank puts into another process group does not outlive it, however the job ends, nor is it that of another job.
func TestNoGroupOfARankIsLeft(t *testing.T) {
	other := exec.Command("sleep", "300")
	other.Env = append(os.Environ(), "SHUNT_ID=another", "SHUNT_RANK=0")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, other.Start())
	defer func() { _ = other.Process.Kill() }()
	for name, end := range map[string]string{"well": "", "one fails": "exit $SHUNT_RANK", "killed": "kill -9 $$"} {
		t.Run(name, func(t *testing.T) {
			j, out := shell(2, ofOwnGroup(t, sleeper, "echo $pid; "+end))
			j.Prefix = false
			_ = Run(context.Background(), j, nil) // fails as it is to
			pids := pidsIn(t, out.String())
			require.Len(t, pids, 2)
			for _, pid := range pids {
				requireGone(t, pid)
			}
		})
	}
	require.NoError(t, other.Process.Signal(syscall.Signal(0)))
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", other.Process.Pid))
	require.NoError(t, err)
	require.NotContains(t, string(stat), ") Z ")
}

func TestNothingIsLeftBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	// A grandchild that would run on holds the output open; it ends with its rank.
	j, out := shell(2, `sleep 300 & echo $!`)
	require.NoError(t, Run(context.Background(), j, nil))
	for _, line := range lines(out) {
		pid, err := strconv.Atoi(line[len("[0] "):])
		require.NoError(t, err)
		requireGone(t, pid)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// requireGone waits until a process does not exist or is a zombie that its
// adopter has yet to collect.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}, 30*time.Second, 5*time.Millisecond)
}

// No rank of a launcher that is killed is left, and nothing that one has started.
func TestKilledLauncherLeavesNoRank(t *testing.T) {
	if os.Getenv("LAUNCH_CHILD") != "" {
		// The lifeline begins when the guard has received the rank; only then is there something to guard.
		_ = Run(context.Background(), Job{World: 2, Path: "sh", Label: "test",
			Args:     []string{"-c", "read go; sleep 300 & own=$!; " + ofOwnGroup(t, sleeper, "echo $$ $own $pid; wait")},
			Lifeline: func(int, int) []byte { return []byte("go\n") }}, nil)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestKilledLauncherLeavesNoRank$")
	cmd.Env = append(os.Environ(), "LAUNCH_CHILD=1", "TMPDIR="+t.TempDir())
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var pids [6]int
	for i := 0; i < len(pids); i += 3 {
		_, err := fmt.Fscanln(stdout, &pids[i], &pids[i+1], &pids[i+2])
		require.NoError(t, err)
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for _, pid := range pids {
		requireGone(t, pid)
	}
}

// Signals reach what a rank has put into another group.
func TestSignalsReachGroupsOfARank(t *testing.T) {
	// A shell handles a signal while it waits, but not before a program in its foreground has ended.
	const program = `trap "echo asked >&2; kill \$!; exit 0" USR1; sleep 300 >/dev/null & echo ready; wait`
	out := &notifyingBuffer{found: make(chan struct{}), want: 1}
	j := Job{World: 1, Path: "sh", Label: "test", Stdout: out, Stderr: out,
		Args: []string{"-c", ofOwnGroup(t, program, "trap '' USR1; echo $pid; cat <&9")}}
	signals := make(chan os.Signal, 1)
	go func() {
		<-out.found
		signals <- syscall.SIGUSR1
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // the program would go on
	defer cancel()
	require.NoError(t, Run(ctx, j, signals))
	require.Contains(t, out.buffer.String(), "asked\n") // beside what sh says of the end of timeout
}
