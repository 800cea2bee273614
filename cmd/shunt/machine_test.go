package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/internal/seccomptest"
)

// denyVariable makes this binary, run as the command, do without a system call: its number, an error number.
const denyVariable = "DENY_SYSTEM_CALL"

func denyAsAsked() {
	call, number, ok := strings.Cut(os.Getenv(denyVariable), ",")
	if !ok {
		return
	}
	c, errCall := strconv.ParseUint(call, 10, 32)
	n, errNumber := strconv.ParseUint(number, 10, 16)
	if errCall != nil || errNumber != nil {
		panic(denyVariable)
	}
	if err := seccomptest.Deny(uint32(c), unix.Errno(n)); err != nil {
		panic(err)
	}
}

// doctorOf runs doctor in a process of its own, by a shell that sets limits first.
func doctorOf(t *testing.T, limits string, env ...string) (found map[string][]finding, code int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command("/bin/sh", "-c", limits+` exec "$0" doctor --json`, self)
	c.Env = append(os.Environ(), env...)
	out, err := c.Output()
	if err != nil {
		require.NotNil(t, c.ProcessState, "%v", err)
	}
	var findings []finding
	require.NoError(t, json.Unmarshal(out, &findings), "%s", out)
	found = map[string][]finding{}
	for _, f := range findings {
		found[f.Check] = append(found[f.Check], f)
	}
	return found, c.ProcessState.ExitCode()
}

func deny(call int, number unix.Errno) string {
	return fmt.Sprintf("%s=%d,%d", denyVariable, call, int(number))
}

// What Shunt can do without is no failure.
func TestDoctorWithoutACall(t *testing.T) {
	for call, name := range map[int]string{
		unix.SYS_PIDFD_OPEN:       "pidfd_open",
		unix.SYS_PROCESS_VM_READV: "process_vm_readv",
	} {
		for _, number := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
			found, code := doctorOf(t, "", deny(call, number))
			require.Zero(t, code, "%+v", found)
			require.Len(t, found["kernel"], 2)
			require.Equal(t, warn, found["kernel"][1].Level)
			require.Equal(t, name+": "+number.Error(), found["kernel"][1].Detail)
			require.Equal(t, fine, found["ranks"][0].Level)
		}
	}
}

func TestDoctorWithoutSharedMemory(t *testing.T) {
	found, code := doctorOf(t, "", deny(unix.SYS_MEMFD_CREATE, unix.EPERM))
	require.Equal(t, exitWrong, code)
	require.Equal(t, broken, found["shared memory"][0].Level)
	require.Contains(t, found["ranks"][0].Detail, "memfd_create: operation not permitted; a filter of system calls (seccomp) may")
}

// The limit on files also holds for memory files, which is easily forgotten.
func TestDoctorNamesLimits(t *testing.T) {
	found, code := doctorOf(t, "ulimit -f 1;")
	require.Equal(t, exitWrong, code)
	require.Contains(t, found["shared memory"][0].Advice, "ulimit -f")
	require.Contains(t, found["ranks"][0].Detail, "ftruncate: file too large; the limit on the size of files")
	var limited []finding
	for _, f := range found["memory"] {
		if f.Level == warn {
			limited = append(limited, f)
		}
	}
	require.Len(t, limited, 1)
	require.Contains(t, limited[0].Detail, "with it, is limited to ")
	require.Contains(t, limited[0].Advice, "ulimit -f")
}

// The number of communicators that doctor prints is the largest for which the limit on open files is enough.
func TestDoctorCountsCommunicators(t *testing.T) {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	var check func(context.Context, int) []finding
	for _, c := range checks {
		if c.name == "descriptors" {
			check = c.run
		}
	}
	require.NotNil(t, check)
	look := func(files, world int) finding {
		few := unix.Rlimit{Cur: uint64(files), Max: limit.Max}
		require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
		found := check(t.Context(), world)
		require.Len(t, found, 1)
		return found[0]
	}
	for _, world := range []int{1, 2, 3, 8, 64} {
		need := func(count int) int { return descriptors.OfProcess + descriptors.OfCommunicators(world, count) }
		few := look(need(1)-1, world)
		require.Equal(t, broken, few.Level)
		require.Equal(t, fmt.Sprintf("up to %d open files", need(1)-1), few.Detail)
		require.Equal(t, fmt.Sprintf("a communicator of %d ranks needs about %d: ulimit -n %d", world, need(1), need(1)),
			few.Advice)
		for files := need(1); files <= need(4); files++ {
			enough := look(files, world)
			require.Equal(t, fine, enough.Level)
			var shown, count, ranks int
			_, err := fmt.Sscanf(enough.Detail,
				"up to %d open files, enough for about %d communicators of %d ranks in host memory", &shown, &count, &ranks)
			require.NoError(t, err, enough.Detail)
			require.Equal(t, []int{files, world}, []int{shown, ranks})
			require.True(t, need(count) <= files && files < need(count+1), "%s; %d need %d", enough.Detail, count, need(count))
		}
	}
}
