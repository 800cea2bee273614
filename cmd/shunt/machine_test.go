package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/internal/seccomptest"
)

// denyVariable makes this binary, run as the command, do without a system call: its number, an error number, and, if it
// is allowed where an argument is large enough, the argument's number and the least that it may be.
const denyVariable = "DENY_SYSTEM_CALL"

func denyAsAsked() {
	text, set := os.LookupEnv(denyVariable)
	if !set {
		return
	}
	var call, number, argument, least uint32
	n, err := fmt.Sscanf(text, "%d,%d,%d,%d", &call, &number, &argument, &least)
	switch n {
	case 2:
		err = seccomptest.Deny(call, unix.Errno(number))
	case 4:
		err = seccomptest.DenyLess(call, int(argument), least, unix.Errno(number))
	}
	if err != nil {
		panic(fmt.Sprintf("%s=%s: %v", denyVariable, text, err))
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

// Machines on which more than 1,024 CPUs are possible are like others, though Linux refuses masks of 1,024 there. Where
// it tells nothing of CPUs, ranks take all for theirs.
func TestMoreCPUsThanAMaskHas(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	look := func(env ...string) (cpus []finding, places []topology.Place) {
		found, code := doctorOf(t, "", env...)
		require.Zero(t, code, "%+v", found)
		c := exec.Command(self, "topo", "-n", "2", "--json")
		c.Env = append(os.Environ(), env...)
		out, err := c.Output()
		require.NoError(t, err)
		m, err := topology.Parse(out)
		require.NoError(t, err)
		for _, p := range m.Places {
			p.PID = 0
			places = append(places, p)
		}
		return found["CPUs"], places
	}
	cpus, places := look()
	require.Len(t, places, 2)
	fewCPUs, fewPlaces := look(fmt.Sprintf("%s=%d,%d,1,129", denyVariable, unix.SYS_SCHED_GETAFFINITY, unix.EINVAL))
	require.Equal(t, cpus, fewCPUs)
	require.Equal(t, places, fewPlaces)
	noCPUs, noPlaces := look(deny(unix.SYS_SCHED_GETAFFINITY, unix.EPERM))
	require.Len(t, noCPUs, 1)
	require.Equal(t, warn, noCPUs[0].Level)
	require.Contains(t, noCPUs[0].Advice, "seccomp")
	for _, p := range noPlaces {
		require.GreaterOrEqual(t, p.CPUs, places[0].CPUs)
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
