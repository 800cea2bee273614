package bootstrap

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
)

// processID names one process for as long as the host runs.
type processID struct {
	boot      string // of the host
	namespace string // of pids, and of the clock that start is by
	pid       int
	start     string // in ticks since boot
}

// identify tells of a process of this pid namespace what /proc tells; what it
// does not tell stays empty, and no death of the process is certain then.
func identify(pid int) processID {
	p := processID{pid: pid}
	_ = descriptors.Do(func() error {
		b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		p.boot = strings.TrimSpace(string(b))
		return err
	})
	for _, kind := range []string{"pid", "time"} {
		if link, err := os.Readlink("/proc/self/ns/" + kind); err == nil {
			p.namespace += link
		}
	}
	p.start, _ = startTime(pid)
	return p
}

var own struct {
	mu sync.Mutex
	id processID
}

// thisProcess identifies this process, read from /proc once.
func thisProcess() processID {
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.id.boot == "" || own.id.start == "" {
		own.id = identify(os.Getpid())
	}
	return own.id
}

// startTime returns field 22 of /proc/pid/stat. Only an error of which gone is true means
// that the process does not exist; running out of descriptors, say, does not.
func startTime(pid int) (string, error) {
	_, fields, err := stat(pid)
	if err != nil {
		return "", err
	}
	return fields[19], nil
}

// stat returns a process's name, and the fields of /proc/pid/stat from the third to the 22nd at least.
func stat(pid int) (name string, fields []string, err error) {
	var b []byte
	err = descriptors.Do(func() (err error) {
		b, err = os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err
	})
	if err != nil {
		return "", nil, err
	}
	// The name, field 2, is in parentheses and may hold anything.
	end := bytes.LastIndexByte(b, ')')
	if fields = strings.Fields(string(b[end+1:])); len(fields) < 20 {
		return "", nil, plugin.Errorf(plugin.System, "/proc/%d/stat has %d fields, want at least 22", pid, len(fields)+2)
	}
	return string(b[bytes.IndexByte(b, '(')+1 : end]), fields, nil
}

// gone reports whether an error says that a process does not exist.
func gone(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESRCH)
}

// ended reports that p has certainly ended, which a process of another host or
// of another pid namespace never has.
func (p processID) ended() bool {
	if p.pid <= 0 || p.start == "" || !p.sameSystem(thisProcess()) {
		return false
	}
	fd, err := p.open()
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return p.endedByProc() // an old kernel, or a filter that forbids pidfd_open
	case err != nil:
		return gone(err)
	}
	defer unix.Close(fd)
	return readable(fd) // a zombie has ended, though it has a start time
}

// endedByProc reports what /proc and kill tell where there are no pidfds.
func (p processID) endedByProc() bool {
	_, fields, err := stat(p.pid)
	switch {
	case gone(err):
		return errors.Is(unix.Kill(p.pid, 0), unix.ESRCH) // or it is hidden by the options of /proc
	case err != nil:
		return false
	case fields[19] != p.start:
		return true
	}
	// A first thread that has ended is a zombie while others run.
	return (fields[0] == "Z" || fields[0] == "X") && (fields[17] == "0" || fields[17] == "1")
}

// readable reports whether the process of a pidfd has ended.
func readable(fd int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

// open opens a pidfd of the process, and no other with its number. Of the error
// gone is true if the process has ended.
func (p processID) open() (fd int, err error) {
	if err := descriptors.Do(func() (err error) {
		fd, err = unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK)
		return err
	}); err != nil {
		return -1, err
	}
	// From here the descriptor stands for whatever has that pid now; that it is
	// still the right process shows its start time.
	start, err := startTime(p.pid)
	switch {
	case err == nil && start != p.start:
		err = syscall.ESRCH
	case gone(err) && !readable(fd): // hidden by the options of /proc
		err = plugin.Errorf(plugin.System, "/proc tells nothing of process %d", p.pid)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// sameSystem reports whether pids and start times mean the same to p and q.
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
// watched (another host, an old kernel, no descriptors, or this process itself).
func watchProcess(p processID, ended func()) *processWatch {
	self := thisProcess()
	if p.pid == self.pid || p.pid <= 0 || p.start == "" || !p.sameSystem(self) {
		return nil
	}
	fd, err := p.open()
	if gone(err) {
		go ended()
	}
	if err != nil {
		return nil
	}
	w := &processWatch{file: os.NewFile(uintptr(fd), "pidfd")}
	raw, err := w.file.SyscallConn()
	if err != nil {
		w.file.Close()
		return nil
	}
	go func() {
		// Read calls back when the pidfd is readable, that is, when the process has
		// ended, and returns an error when the pidfd is closed.
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

// lastWords is the time allowed for reading what a dead process has sent.
const lastWords = 20 * time.Millisecond
