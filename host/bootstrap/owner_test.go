package bootstrap

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// listenAs listens at an abstract name as another user. The thread that was that user for it ends.
func listenAs(t *testing.T, uid int, name string) {
	t.Helper()
	type result struct {
		listener net.Listener
		err      error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0))
		if errno != 0 {
			made <- result{nil, errno}
			return
		}
		l, err := net.Listen("unix", name)
		made <- result{l, err}
	}()
	r := <-made
	if errors.Is(r.err, syscall.EPERM) {
		t.Skip("CAP_SETUID is absent: this process cannot be another user")
	}
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.listener.Close() })
}

// A rank whose meeting place belongs to another user gets an error at once.
func TestRankOfAnotherUserIsToldAtOnce(t *testing.T) {
	const other = 65534
	name := fmt.Sprintf("@shunt-test-user-%d", os.Getpid())
	listenAs(t, other, name)
	begun := time.Now()
	s, err := Join(t.Context(), Config{Rank: 1, World: 2, URL: "unix://" + name, Timeout: 20 * time.Second, Logger: quiet})
	if err == nil {
		s.Close()
	}
	want := fmt.Sprintf("process %d belongs to user %d, not to user %d", os.Getpid(), other, os.Geteuid())
	if plugin.CodeOf(err) != plugin.InvalidArgument || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	if took := time.Since(begun); took > promptly {
		t.Errorf("it took %v", took)
	}
}
