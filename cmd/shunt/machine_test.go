package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

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
func TestDoctorWithoutPidfd(t *testing.T) {
	for _, number := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
		found, code := doctorOf(t, "", deny(unix.SYS_PIDFD_OPEN, number))
		require.Zero(t, code, "%+v", found)
		require.Equal(t, warn, found["kernel"][1].Level)
		require.Equal(t, "pidfd_open: "+number.Error(), found["kernel"][1].Detail)
		require.Equal(t, fine, found["ranks"][0].Level)
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
