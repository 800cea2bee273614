package process

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// child is a started process. Its end is seen by waiting for the process, not
// for its pipes: a grandchild that holds them does not hide a crash.
type child struct {
	pid    int
	mu     sync.Mutex // kill comes before reaping, or not at all: the number may be another's then
	reaped bool
	exited chan struct{} // closed once the process is reaped
	status string        // how it ended; read after exited
	clean  bool          // it ended with status 0, or its status is not known; read after exited
}

var execute = startProcess // tests replace it

// spawn starts cmd in a process group of its own. The kernel kills the child
// when the thread that forked it ends (PDEATHSIG), so that thread belongs to
// the child until it is reaped; it spends the time in waitid.
func spawn(cmd *exec.Cmd) (*child, error) {
	c := &child{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var err error
		c.pid, err = execute(cmd)
		started <- err
		if err == nil {
			c.wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// bounded runs f, which may hang in a file system that does not respond, and does not wait for it any longer when ctx
// ends: what f returns later is undone.
func bounded[T any](ctx context.Context, f func() (T, error), undo func(T)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	returned := make(chan outcome, 1)
	go func() {
		value, err := f()
		returned <- outcome{value, err}
	}()
	select {
	case o := <-returned:
		return o.value, o.err
	case <-ctx.Done():
	}
	go func() {
		if o := <-returned; o.err == nil {
			undo(o.value)
		}
	}()
	var none T
	return none, ctx.Err()
}

func (c *child) wait() {
	defer close(c.exited)
	for {
		err := unix.Waitid(unix.P_PID, c.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	// The zombie still holds the group's number, so this reaches its own descendants only.
	_ = unix.Kill(-c.pid, unix.SIGKILL)
	c.mu.Lock()
	c.reaped = true
	var ws unix.WaitStatus
	_, err := unix.Wait4(c.pid, &ws, 0, nil)
	for err == unix.EINTR {
		_, err = unix.Wait4(c.pid, &ws, 0, nil)
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		// The program ignores SIGCHLD, or waits for every child.
		c.status, c.clean = fmt.Sprintf("ended, reaped by someone else (%v)", err), true
	case ws.Signaled():
		c.status = fmt.Sprintf("was killed by signal %d (%s)", int(ws.Signal()), ws.Signal())
	default:
		c.status = fmt.Sprintf("exited with status %d", ws.ExitStatus())
		c.clean = ws.ExitStatus() == 0
	}
}

// kill ends the process, stopped or not. It may be called at any time and more
// than once.
func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		_ = unix.Kill(c.pid, unix.SIGKILL)
	}
}

// stopped reports whether the process is stopped by a signal.
func (c *child) stopped() bool { return processState(c.pid) == 'T' }

// asleep reports whether every thread of the process waits for something other
// than a processor or a disk.
func (c *child) asleep() bool { return allAsleep(c.pid) }

// cpu returns the processor time that the process has used.
func (c *child) cpu() time.Duration { return processorTime(c.pid) }
