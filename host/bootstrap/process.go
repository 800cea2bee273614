package bootstrap

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processID names one process for as long as the host runs.
type processID struct {
	boot      string // of the host
	namespace string // of pids
	pid       int
	start     string // in ticks since boot
}

// thisProcess and the check below return an empty boot or start where /proc
// does not tell.
func identify(pid int) processID {
	p := processID{pid: pid}
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		p.boot = strings.TrimSpace(string(b))
	}
	if link, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		p.namespace = link
	}
	p.start = startTime(pid)
	return p
}

// startTime is field 22 of /proc/pid/stat, or "" if there is no such process.
func startTime(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The name, field 2, is in parentheses and may hold anything.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return ""
	}
	fields := strings.Fields(string(b[i+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// dead reports that p has certainly ended; a process of another host or of
// another pid namespace is given the benefit of the doubt.
func (p processID) dead() bool {
	self := identify(os.Getpid())
	if p.boot == "" || p.boot != self.boot || p.namespace != self.namespace || p.start == "" {
		return false
	}
	return startTime(p.pid) != p.start
}

// sameSystem reports whether pids mean the same to p and q.
func (p processID) sameSystem(q processID) bool {
	return p.boot != "" && p.boot == q.boot && p.namespace == q.namespace
}

// processWatch tells when another process of this system ends, also when a
// forked child of it keeps its sockets open.
type processWatch struct {
	file  *os.File // a pidfd
	ended atomic.Bool
}

// watchProcess calls ended, once, when the process ends; nil if that cannot be
// watched (another host, an old kernel, or this process itself).
func watchProcess(p processID, ended func()) *processWatch {
	self := identify(os.Getpid())
	if p.pid == self.pid || p.pid <= 0 || p.start == "" || !p.sameSystem(self) {
		return nil
	}
	fd, err := unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, syscall.ESRCH) {
		go ended()
		return nil
	}
	if err != nil {
		return nil
	}
	w := &processWatch{file: os.NewFile(uintptr(fd), "pidfd")}
	// From here the descriptor stands for whatever has that pid now; that it is
	// still the right process shows its start time.
	raw, err := w.file.SyscallConn()
	if err != nil || startTime(p.pid) != p.start {
		w.file.Close()
		go ended()
		return nil
	}
	go func() {
		// Read calls back when the poller finds the pidfd readable, which is when
		// the process has ended, and returns an error when it is closed.
		err := raw.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 || (err != nil && !errors.Is(err, syscall.EINTR))
		})
		if err == nil {
			w.ended.Store(true)
			ended()
		}
	}()
	return w
}

// stop ends the watch.
func (w *processWatch) stop() {
	if w != nil {
		w.file.Close()
	}
}

// lastWords is how long what a dead process has sent may take to be read.
const lastWords = 20 * time.Millisecond
