//go:build cgo

package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// inheritedDescriptors lists the descriptors below 2048 that this process has got at exec, without /proc. Go's own
// close at exec.
func inheritedDescriptors() (list []int) {
	for fd := range 2048 {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			list = append(list, fd)
		}
	}
	return list
}

// denyCloseRange makes close_range fail in this process from now on.
func denyCloseRange(number unix.Errno) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLOSE_RANGE, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(number)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if failed != 0 || thread != 0 {
		return fmt.Errorf("seccomp: %w, thread %d", failed, thread)
	}
	return nil
}

// Variables of a process "without close_range".
const (
	numberEnv = "SHUNT_TEST_ERRNO" // with which close_range fails
	procEnv   = "SHUNT_TEST_PROC"  // "without": nothing is mounted there
	limitEnv  = "SHUNT_TEST_LIMIT" // "lowered": fewer descriptors than are open; "none left": all are in use
)

// withoutCloseRange starts a process as plugins are started, and prints which descriptors it has.
func withoutCloseRange() {
	if err := startWithoutCloseRange(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func startWithoutCloseRange() error {
	var number int
	if _, err := fmt.Sscan(os.Getenv(numberEnv), &number); err != nil {
		return err
	}
	if os.Getenv(procEnv) == "without" {
		if err := unix.Mount("none", "/proc", "tmpfs", 0, ""); err != nil {
			return os.NewSyscallError("mount", err)
		}
	}
	fd, err := unix.Open("/dev/zero", unix.O_RDONLY, 0) // on purpose without O_CLOEXEC
	if err != nil {
		return err
	}
	for _, at := range []int{5, 300, 1500} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD, at); err != nil {
			return err
		}
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(os.Args[0])
	if err := os.Setenv(modeEnv, "inherited"); err != nil {
		return err
	}
	cmd.Env = os.Environ()
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = write, os.Stderr, []*os.File{write}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	switch os.Getenv(limitEnv) {
	case "lowered":
		limit.Cur = 100
	case "none left": // but for the five that the start needs
		limit.Cur = 40
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return err
		}
		var all []int
		for {
			fd, err := unix.Dup(fd)
			if errors.Is(err, unix.EMFILE) {
				break
			}
			if err != nil {
				return err
			}
			all = append(all, fd)
		}
		for _, fd := range all[len(all)-5:] {
			unix.Close(fd)
		}
	}
	if err := errors.Join(unix.Setrlimit(unix.RLIMIT_NOFILE, &limit), denyCloseRange(unix.Errno(number))); err != nil {
		return err
	}
	began := time.Now()
	pid, err := startProcess(cmd)
	if err != nil {
		return err
	}
	if took := time.Since(began); took > 5*time.Second {
		return fmt.Errorf("the start took %v", took)
	}
	write.Close()
	said, err := io.ReadAll(read)
	if err != nil {
		return err
	}
	fmt.Print(string(said))
	_, err = unix.Wait4(pid, nil, 0, nil)
	return err
}

// Where close_range is missing or refused, a plugin still inherits none of the host's descriptors: also without /proc,
// with a limit of any size, and where no descriptor is left to open /proc with.
func TestPluginInheritsNothingWithoutCloseRange(t *testing.T) {
	for _, number := range []unix.Errno{unix.ENOSYS, unix.EPERM, unix.EINVAL} {
		for _, proc := range []string{"with", "without"} {
			for _, limit := range []string{"any", "lowered", "none left"} {
				t.Run(fmt.Sprintf("%s/%s proc/%s", number.Error(), proc, limit), func(t *testing.T) {
					cmd := exec.Command(os.Args[0])
					cmd.Env = append(os.Environ(), modeEnv+"=without close_range", fmt.Sprintf("%s=%d", numberEnv, int(number)),
						procEnv+"="+proc, limitEnv+"="+limit)
					if proc == "without" {
						cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
							UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
							GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}}
						if err := (&exec.Cmd{Path: "/bin/true", SysProcAttr: cmd.SysProcAttr}).Run(); err != nil {
							t.Skip("user and mount namespaces are absent: " + err.Error())
						}
					}
					out, err := cmd.CombinedOutput()
					require.NoError(t, err, "%s", out)
					require.Equal(t, "[0 1 2 3]", strings.TrimSpace(string(out)))
				})
			}
		}
	}
}
