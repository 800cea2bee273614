package descriptors

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A program that has closed its standard streams since it began gets none of Shunt's descriptors in their place.
func TestNothingBecomesAStandardStream(t *testing.T) {
	if os.Getenv("SHUNT_TEST_STREAMS") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestNothingBecomesAStandardStream$")
		cmd.Env = append(os.Environ(), "SHUNT_TEST_STREAMS=closed")
		report, write, err := os.Pipe()
		require.NoError(t, err)
		cmd.ExtraFiles = []*os.File{write}
		require.NoError(t, cmd.Start())
		require.NoError(t, write.Close())
		text := make([]byte, 1000)
		n, _ := report.Read(text)
		_ = cmd.Wait() // its streams are closed, so it cannot end well
		require.Equal(t, "/dev/null /dev/null /dev/null", string(text[:n]))
		return
	}
	for fd := range 3 {
		_ = unix.Close(fd)
	}
	Release()() // which gives descriptors back and takes them again
	_ = Ready()
	var links []string
	for _, fd := range []string{"0", "1", "2"} {
		link, err := os.Readlink("/proc/self/fd/" + fd)
		if err != nil {
			link = err.Error()
		}
		links = append(links, link)
	}
	_, _ = unix.Write(3, []byte(strings.Join(links, " ")))
}

// What fails for lack of descriptors runs again with the whole reserve, which is full again afterwards.
func TestDoRunsAgainOnTheReserve(t *testing.T) {
	require.NoError(t, Ready())
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(limit.Cur, 256), Max: limit.Max}))
	var err error
	for err == nil { // the program has all the others
		var fd int
		if fd, err = spare(); err == nil {
			defer unix.Close(fd)
		}
	}
	require.ErrorIs(t, err, unix.EMFILE)
	runs := 0
	require.NoError(t, Do(func() error { runs++; return need(reserved) }))
	require.Equal(t, 2, runs)
	require.ErrorIs(t, need(1), unix.EMFILE)
}
