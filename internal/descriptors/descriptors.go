// Package descriptors keeps a process honest when it runs out of file
// descriptors.
//
// A few are held in reserve from the start. When none is left, a process still reports
// to its peers and reads /proc by means of the reserve: without it a lack of descriptors
// here looks like the death of others.
package descriptors

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

const (
	reserved = 8
	// ofPoller counts the descriptors that the Go runtime opens when it first waits
	// for a file, a socket or a timer. It aborts the process if it cannot.
	ofPoller = 2
	// attempts bounds the retries when other threads take the descriptors freed here.
	attempts = 8
)

var reserve struct {
	mu      sync.Mutex
	polling bool  // the runtime's poller has been started
	fds     []int // of nothing
}

// The poller is started when the program or library loads: later the embedding
// program may have taken every descriptor.
func init() { _ = Ready() }

// Ready starts the runtime's poller, fills the reserve, and sees to it that no descriptor of Shunt's becomes a standard
// stream. The error says that
// there are no descriptors for the poller; then nothing that waits may be called.
func Ready() error {
	reserve.mu.Lock()
	defer reserve.mu.Unlock()
	if !reserve.polling {
		standard()
		if err := need(ofPoller); err != nil {
			return err
		}
		time.AfterFunc(time.Hour, func() {}).Stop() // the first timer starts the poller
		reserve.polling = true
	}
	refill()
	return nil
}

// standard puts /dev/null where the program has closed a standard stream: a connection there would get what the
// program, or a logger, writes to it. It returns no error, since it fails only for lack of descriptors.
func standard() {
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDWR, 0)
		if err != nil {
			return
		}
		if fd > 2 {
			_ = unix.Close(fd)
			return
		}
	}
}

// refill tops the reserve up. The caller holds the lock.
func refill() {
	standard()
	for len(reserve.fds) < reserved {
		fd, err := spare()
		if err != nil {
			return // those in use will be given back
		}
		reserve.fds = append(reserve.fds, fd)
	}
}

// spare opens a descriptor that refers to nothing.
func spare() (int, error) { return unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0) }

// Release closes the reserve, for a moment in which something must be said.
// The returned function takes it back.
func Release() (restore func()) {
	reserve.mu.Lock()
	defer reserve.mu.Unlock()
	for _, fd := range reserve.fds {
		_ = unix.Close(fd)
	}
	reserve.fds = nil
	return func() {
		reserve.mu.Lock()
		defer reserve.mu.Unlock()
		refill()
	}
}

// Do runs f, which opens a descriptor or two and closes them soon or keeps
// them, and runs it again on the reserve if there were none.
func Do(f func() error) error {
	err := f()
	for range attempts {
		if !Lacking(err) {
			break
		}
		restore := Release()
		err = f()
		restore()
		if Lacking(err) {
			runtime.Gosched() // another goroutine has what was freed
		}
	}
	return err
}

// Lacking reports whether an error says that there are no descriptors left, in
// this process or in the system.
func Lacking(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// Need returns an error that says so unless n more descriptors can be opened,
// besides the reserve. It holds for the moment.
func Need(n int) error {
	reserve.mu.Lock()
	defer reserve.mu.Unlock()
	refill()
	return need(n)
}

func need(n int) error {
	fds := make([]int, 0, n)
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	for range n {
		fd, err := spare()
		if Lacking(err) {
			return Error(err, n)
		}
		if err != nil {
			return plugin.Errorf(plugin.System, "opening a file descriptor: %w", err)
		}
		fds = append(fds, fd)
	}
	return nil
}

// Error returns an error for the lack of n descriptors.
func Error(err error, n int) *plugin.Error {
	name, advice := "EMFILE", "raise the limit of this process (ulimit -n)"
	if errors.Is(err, syscall.ENFILE) {
		name, advice = "ENFILE", "raise the limit of the system (fs.file-max)"
	}
	return &plugin.Error{Code: plugin.OutOfMemory, Rank: -1, Cause: err, Message: fmt.Sprintf(
		"%s: too many open files: %d more file descriptors are needed, and most of the %d that this process may open are in use; %s", name, n, Limit(), advice)}
}

// Advise returns err, or what to do about it if it is a lack of descriptors, of which n are needed.
func Advise(err error, n int) error {
	var advised *plugin.Error
	if !Lacking(err) || (errors.As(err, &advised) && advised.Code == plugin.OutOfMemory) {
		return err
	}
	return Error(err, n)
}

// Limit returns the number of descriptors that this process may have open.
func Limit() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Cur, 1<<30))
}

// OfProcess is about how many descriptors a process of Shunt has without any
// communicator: its standard streams, what the Go runtime keeps, the reserve.
const OfProcess = 3 + 2 + ofPoller + reserved

// OfCommunicators returns the number of descriptors that a rank of a job needs to make
// count communicators of the whole world in host memory: rank 0's connections and the
// pidfds of the others; those that are open while the last one is made; and those that
// each keeps, its server and two memory files.
func OfCommunicators(world, count int) int {
	return 2*world + 2*(world+1) + min(world, 4) + 1 + 3*count
}
