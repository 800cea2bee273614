package bootstrap

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/internal/seccomptest"
	"github.com/shunt-ccl/shunt/plugin"
)

// denyVariable makes a rank's process do without a system call: its number, an error number.
const denyVariable = "SHUNT_TEST_DENY"

func denyAsAsked() error {
	call, number, ok := strings.Cut(os.Getenv(denyVariable), ",")
	if !ok {
		return nil
	}
	c, err := strconv.ParseUint(call, 10, 32)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return err
	}
	return seccomptest.Deny(uint32(c), unix.Errno(n))
}

func deny(call int, number unix.Errno) string {
	return fmt.Sprintf("%s=%d,%d", denyVariable, call, int(number))
}

// ofSockets are the calls that a rank 0 listens with.
var ofSockets = map[string]int{
	"socket": unix.SYS_SOCKET, "bind": unix.SYS_BIND, "listen": unix.SYS_LISTEN, "accept4": unix.SYS_ACCEPT4,
}

// joins joins a rank in this process, and returns how that ended and how long it took.
func joins(t *testing.T, rank, world int, url string, timeout time.Duration) (took time.Duration, err error) {
	t.Helper()
	began := time.Now()
	s, err := Join(t.Context(), Config{Rank: rank, World: world, URL: url, Timeout: timeout, Logger: quiet})
	if err == nil {
		err = s.Close()
	}
	return time.Since(began), err
}

// Where rank 0 may not listen, ranks that meet by a file hear so at once, whether they wait for it or come later.
func TestRanksHearByTheFileThatRank0CannotServe(t *testing.T) {
	for name, call := range ofSockets {
		for _, number := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
			t.Run(name+" "+number.Error(), func(t *testing.T) {
				url := "file://" + t.TempDir() + "/id"
				type result struct {
					took time.Duration
					err  error
				}
				waits := make(chan result, 1)
				go func() {
					took, err := joins(t, 1, 3, url, 20*time.Second)
					waits <- result{took, err}
				}()
				p := start(t, "wait", append(rankEnv(0, 3, url), deny(call, number))...)
				line := p.line()
				require.Contains(t, line, "error rank 0 (pid "+strconv.Itoa(p.cmd.Process.Pid))
				require.Contains(t, line, name+": "+number.Error())
				if name != "bind" { // which a port or an address may cause too
					require.Contains(t, line, "a filter of system calls (seccomp) may forbid it")
				}
				r := <-waits
				require.EqualError(t, r.err, strings.TrimPrefix(strings.TrimSpace(line), "error "))
				require.Equal(t, plugin.System, plugin.CodeOf(r.err))
				require.Equal(t, 0, r.err.(*plugin.Error).Rank)
				require.Less(t, r.took, promptly)
				took, late := joins(t, 2, 3, url, 20*time.Second)
				require.Equal(t, r.err.Error(), late.Error())
				require.Less(t, took, promptly)
			})
		}
	}
}

// What an earlier job has left of its failure fails no later one: neither what was there before this process, nor what
// this process was told before. It is in the error of a rank that finds nothing else, and a rank 0 replaces it.
func TestFailureOfAnEarlierJob(t *testing.T) {
	for name, at := range map[string]time.Time{
		"before this process": processStart().Add(-time.Second), "told before": time.Now(),
	} {
		path := t.TempDir() + "/id"
		f := fileFailure{at, plugin.System, "no listener"}
		require.NoError(t, writeFile(path, f.encode()))
		if name == "told before" {
			_, err := joins(t, 1, 2, "file://"+path, 20*time.Second)
			require.EqualError(t, err, "no listener")
		}
		_, err := joins(t, 1, 2, "file://"+path, 100*time.Millisecond)
		require.Equal(t, plugin.Timeout, plugin.CodeOf(err), name)
		require.ErrorContains(t, err, "by a rank 0 that failed: no listener", name)
		noErrors(t, each(2, func(rank int) error {
			s, err := Join(t.Context(), Config{Rank: rank, World: 2, URL: "file://" + path, Timeout: 20 * time.Second,
				Logger: quiet})
			if err == nil {
				err = s.Close()
			}
			return err
		}))
		require.NoFileExists(t, path)
	}
}

// A rank 0 that may not have the file leaves it as it is: another job has it.
func TestFailureInNoFileOfOthers(t *testing.T) {
	path := t.TempDir() + "/id"
	content := encodeFile(sampleID(), identify(os.Getppid()))
	require.NoError(t, os.WriteFile(path, content, 0o600))
	_, err := Join(t.Context(), Config{Rank: 0, World: 2, URL: "file://" + path, Timeout: time.Second, Logger: quiet})
	require.ErrorContains(t, err, "in use by a job")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, content, b)
}

func TestTextOfAFailureInAFile(t *testing.T) {
	now := time.Unix(0, time.Now().UnixNano())
	for _, text := range []string{"a", "two\nlines", `"quoted"`, strings.Repeat("long ", 1000), strings.Repeat("\x01", 900)} {
		b := fileFailure{now, plugin.Timeout, text}.encode()
		require.LessOrEqual(t, len(b), maxFileBytes)
		f, is := decodeFailure(b)
		require.True(t, is, "%q", b)
		require.Equal(t, now, f.at)
		require.Equal(t, plugin.Timeout, f.code)
		require.True(t, f.text == text || strings.HasPrefix(text, strings.TrimSuffix(f.text, "…")), f.text)
		for i := range b {
			if g, is := decodeFailure(b[:i]); is {
				t.Fatalf("cut off after %d bytes: %v", i, g)
			}
		}
		_, _, err := decodeFile(b)
		require.Error(t, err)
	}
	_, is := decodeFailure(encodeFile(sampleID(), thisProcess()))
	require.False(t, is)
}

// Where connections cannot be accepted, rank 0 says so at once at every place.
func TestRank0ThatCannotAccept(t *testing.T) {
	for name, url := range map[string]string{
		"tcp": fmt.Sprintf("tcp://127.0.0.1:%d", freePort(t)), "unix": fmt.Sprintf("unix://@shunt-deaf-%d", os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			p := start(t, "wait", append(rankEnv(0, 2, url), deny(unix.SYS_ACCEPT4, unix.EPERM))...)
			require.Regexp(t, `error rank 0 \(pid .*\) cannot take in the other ranks: .*accept4: operation not permitted; `+
				`a filter of system calls \(seccomp\) may forbid it$`, p.line())
			require.Less(t, time.Since(began), promptly)
		})
	}
}

// A rank that may not ask whose process it talks to says so: it blames no other user.
func TestRankThatCannotAskForCredentials(t *testing.T) {
	url := fmt.Sprintf("unix://@shunt-creds-%d", os.Getpid())
	want := `it is not known whose process is at the other end: getsockopt\(SO_PEERCRED\): operation not permitted; ` +
		`a filter of system calls \(seccomp\) may forbid it$`
	for rank, who := range map[int]string{0: "cannot take in the other ranks: ", 1: "cannot join at " + url + ": "} {
		t.Run(who, func(t *testing.T) {
			began := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			other := make(chan struct{})
			go func() {
				defer close(other)
				s, err := Join(ctx, Config{Rank: 1 - rank, World: 2, URL: url, Timeout: 20 * time.Second, Logger: quiet})
				if err == nil {
					s.Close()
				}
			}()
			p := start(t, "wait", append(rankEnv(rank, 2, url), deny(unix.SYS_GETSOCKOPT, unix.EPERM))...)
			line := p.line()
			require.Regexp(t, who+want, line)
			require.NotContains(t, line, "user")
			require.Less(t, time.Since(began), promptly)
			cancel()
			<-other
		})
	}
}

// A rank that gets no socket does not try until its time is over.
func TestRankWithoutSockets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for _, url := range []string{"tcp://" + l.Addr().String(), "unix://@shunt-none", newID(t).String()} {
		began := time.Now()
		p := start(t, "wait", append(rankEnv(1, 2, url), deny(unix.SYS_SOCKET, unix.EPERM))...)
		line := p.line()
		require.Contains(t, line, "error rank 1 cannot join at ")
		require.Contains(t, line, "socket: operation not permitted; a filter of system calls (seccomp) may forbid it")
		require.Less(t, time.Since(began), promptly)
	}
}
