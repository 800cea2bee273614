package launch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Wherever the pieces of the output end: messages are taken out of it, and nothing else is.
func TestMessages(t *testing.T) {
	marker := Marker("secret")
	var all bytes.Buffer
	all.WriteString("before" + marker[:5] + "\n" + marker[:len(marker)-1] + "x")
	require.NoError(t, WriteMessage(&all, marker, map[string]string{"a": "line\nbreak"}))
	require.NoError(t, WriteMessage(&all, marker, 2))
	all.WriteString("between\n" + Marker("other") + "3\n")
	require.NoError(t, WriteMessage(&all, marker, []byte("four")))
	all.WriteString("after" + marker[:7])
	want := "before" + marker[:5] + "\n" + marker[:len(marker)-1] + "xbetween\n" + Marker("other") + "3\nafter" +
		marker[:7]
	for piece := 1; piece <= all.Len(); piece++ {
		var out bytes.Buffer
		var taken []string
		m := NewMessages(&out, marker, func(text []byte) { taken = append(taken, string(text)) })
		for rest := all.Bytes(); len(rest) > 0; {
			n, err := m.Write(rest[:min(piece, len(rest))])
			require.NoError(t, err)
			rest = rest[n:]
		}
		require.NoError(t, m.Close())
		require.Equal(t, want, out.String(), "pieces of %d bytes", piece)
		require.Equal(t, []string{`{"a":"line\nbreak"}`, "2", `"Zm91cg=="`}, taken)
	}

	// A message that ends with its process is dropped.
	var out bytes.Buffer
	m := NewMessages(&out, marker, func([]byte) { t.Error("a part of a message is taken") })
	_, err := m.Write([]byte("text" + marker + "[1,"))
	require.NoError(t, err)
	require.NoError(t, m.Close())
	require.Equal(t, "text", out.String())
}

func TestSignalLines(t *testing.T) {
	s, is := ParseSignalLine(SignalLine(syscall.SIGUSR2))
	require.True(t, is)
	require.Equal(t, syscall.SIGUSR2, s)
	for _, line := range []string{"", EndLine, "signal", "signal ", "signal 0", "signal -9", "signal 64", "signal x",
		"signal 9 "} {
		_, is := ParseSignalLine(line)
		require.False(t, is, line)
	}
}

// passing passes everything on, as Intercept may.
type passing struct{ io.Writer }

func (passing) Close() error { return nil }

func machinesJob(script string) (Job, *bytes.Buffer) {
	j, out := shell(2, script)
	j.Prefix, j.Machines = false, []string{"a", "b"}
	j.Lifeline = func(int, int) []byte { return []byte("job\n") }
	j.Intercept = func(_, _ int, to io.Writer, _ func(string)) io.WriteCloser { return passing{to} }
	return j, out
}

// Launchers of machines get signals and the request to end on their lifeline, behind what it begins with.
func TestLaunchersAreToldOnTheirLifeline(t *testing.T) {
	within(t, 0)
	out := &notifyingBuffer{found: make(chan struct{}), want: 2}
	j, _ := machinesJob(`trap 'echo signal' TERM USR1 INT
while read line; do echo "read $line"; [ "$line" = end ] && exit 3; done; exit 4`)
	j.Stdout = out
	signals := make(chan os.Signal, 3)
	go func() {
		<-out.found // both read it
		signals <- syscall.SIGUSR1
		signals <- syscall.SIGINT
		signals <- syscall.SIGINT // a second one asks for the end
	}()
	var failure *Failure
	require.ErrorAs(t, Run(context.Background(), j, signals), &failure)
	require.True(t, failure.Told)
	require.Equal(t, []int{3, 3}, []int{failure.Exits[0].Status, failure.Exits[1].Status})
	require.Equal(t, 2, bytes.Count(out.buffer.Bytes(), []byte("read job\n")))
	require.Equal(t, 2, bytes.Count(out.buffer.Bytes(), []byte("read signal 10\n")))
	require.NotContains(t, out.buffer.String(), "\nsignal\n")
}

// One that does not end when asked to is ended by a signal, unless it still writes.
func TestLaunchersThatStay(t *testing.T) {
	before := endReport
	endReport = time.Second
	t.Cleanup(func() { endReport = before })
	ctx, stop := context.WithCancel(context.Background())
	stop()
	j, _ := machinesJob(`exec sleep 60`)
	var failure *Failure
	require.ErrorAs(t, Run(ctx, j, nil), &failure)
	require.Equal(t, []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM},
		[]syscall.Signal{failure.Exits[0].Signal, failure.Exits[1].Signal})

	j, _ = machinesJob(`for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.1; echo record; done; exit 5`)
	require.ErrorAs(t, Run(ctx, j, nil), &failure)
	require.Equal(t, []int{5, 5}, []int{failure.Exits[0].Status, failure.Exits[1].Status})
}

// What is said to a process that does not read is not waited for.
func TestStuckLauncher(t *testing.T) {
	read, write := io.Pipe()
	l := newLifeline(write)
	ended := make(chan bool)
	go func() {
		l.write([]byte("job"))
		close(ended)
	}()
	for range 10 * maxQueued {
		l.say("line")
	}
	l.end()
	l.say("too late")
	require.NoError(t, read.CloseWithError(errors.New("it has ended")))
	<-ended
}
