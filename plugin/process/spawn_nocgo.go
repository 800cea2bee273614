//go:build !cgo

package process

import (
	"os/exec"
	"syscall"
)

// startProcess starts cmd. Hosts are built with cgo; without it, as some
// plugins are, nothing closes the descriptors that libraries opened without O_CLOEXEC.
func startProcess(cmd *exec.Cmd) (pid int, err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid = cmd.Process.Pid
	return pid, cmd.Process.Release()
}
