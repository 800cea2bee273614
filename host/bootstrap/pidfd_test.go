package bootstrap

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/internal/seccomptest"
)

// Kernels before 5.3 and some containers' filters have no pidfd_open. That a process has ended is certain all the same.
func TestDeathIsCertainWithoutPidfd(t *testing.T) {
	for name, mode := range map[string]string{"old kernel": "without pidfd_open", "filter": "forbidden pidfd_open"} {
		t.Run(name, func(t *testing.T) {
			start(t, mode).expect("done")
		})
	}
}

// withoutPidfd looks at processes where pidfd_open fails.
func withoutPidfd(failure unix.Errno) error {
	if err := seccomptest.Deny(unix.SYS_PIDFD_OPEN, failure); err != nil {
		return err
	}
	if _, err := unix.PidfdOpen(1, 0); !errors.Is(err, failure) {
		return fmt.Errorf("pidfd_open: %w, want %w", err, failure)
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		return err
	}
	p := identify(child.Process.Pid)
	another := p // whose number the child has now
	another.start = "1"
	if p.start == "" || p.ended() || !another.ended() {
		return fmt.Errorf("%+v: ended %v, another %v", p, p.ended(), another.ended())
	}
	if watchProcess(p, func() {}) != nil {
		return errors.New("a process is watched without pidfd_open")
	}
	if err := child.Process.Kill(); err != nil {
		return err
	}
	for deadline := time.Now().Add(5 * time.Second); !p.ended(); runtime.Gosched() { // a zombie
		if time.Now().After(deadline) {
			return errors.New("a zombie does not count as ended")
		}
	}
	_ = child.Wait() // it was killed
	if !p.ended() {
		return errors.New("a process that is gone does not count as ended")
	}
	return withoutLeader()
}

const leaderless = "leaderless"

func init() {
	if os.Getenv("SHUNT_TEST_RANK_PROCESS") == leaderless {
		runtime.LockOSThread() // main runs on the first thread of the process
	}
}

// endLeader ends the first thread of this process alone.
func endLeader() int {
	go func() { _, _ = io.Copy(io.Discard, os.Stdin) }() // which does not end: a thread that lives
	_, _, err := unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	return tell(err)
}

// withoutLeader looks at a process whose first thread has ended and whose others have not.
func withoutLeader() error {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "SHUNT_TEST_RANK_PROCESS="+leaderless)
	stdin, err := child.StdinPipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	if err := child.Start(); err != nil {
		return err
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	p := identify(child.Process.Pid)
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		_, fields, err := stat(p.pid)
		switch {
		case err != nil:
			return err
		case time.Now().After(deadline):
			return errors.New("the first thread does not end")
		case fields[0] != "Z":
			continue
		case p.ended():
			return errors.New("a process of which a thread runs counts as ended")
		}
		return nil
	}
}
