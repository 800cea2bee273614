package launch

import (
	"context"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// held is an output that nobody takes until it is released.
type held struct {
	*os.File // that it seems to be
	entered  chan struct{}
	released chan struct{}
}

func (h *held) Write(p []byte) (int, error) {
	select {
	case <-h.released:
	case h.entered <- struct{}{}:
		<-h.released
	}
	return len(p), nil
}

// untakenJob is a job of one rank whose standard output nobody takes, and the lines of its standard error.
func untakenJob(t *testing.T, script string) (Job, *held, func() string) {
	t.Helper()
	before := untaken
	untaken = time.Millisecond
	t.Cleanup(func() { untaken = before })
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.SetReadDeadline(time.Now().Add(20*time.Second)))
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	out := &held{os.Stdin, make(chan struct{}), make(chan struct{})}
	j := Job{World: 1, Path: "sh", Args: []string{"-c", script}, Label: "test", Stdout: out, Stderr: w}
	return j, out, func() string {
		text := make([]byte, 4096)
		n, err := r.Read(text)
		require.NoError(t, err)
		return string(text[:n])
	}
}

// What nobody takes from standard output keeps back neither standard error nor the word that a rank has failed.
func TestUntakenOutputHidesNothing(t *testing.T) {
	j, out, stderr := untakenJob(t, "echo output; read go; echo 'out of memory' >&2; exit 5")
	stdin, say := io.Pipe()
	j.Stdin = stdin
	ended := make(chan error, 1)
	go func() { ended <- Run(context.Background(), j, nil) }()
	<-out.entered
	_, err := say.Write([]byte("go\n"))
	require.NoError(t, err)
	require.NoError(t, say.Close())
	require.Equal(t, "out of memory\n", stderr())
	text := stderr()
	require.Contains(t, text, "test: rank 0 (pid ")
	require.Contains(t, text, "exited with status 5")
	require.Contains(t, text, "test: waiting until the output of the ranks is read\n")
	close(out.released)
	require.Error(t, <-ended)
}

// A signal that comes while output is still to be taken asks for the end of the job, as any other does.
func TestSignalBeforeOutputIsTaken(t *testing.T) {
	j, out, stderr := untakenJob(t, "echo output; exit 5")
	defer close(out.released)
	signals, ended := make(chan os.Signal, 1), make(chan error, 1)
	go func() { ended <- Run(context.Background(), j, signals) }()
	<-out.entered
	require.Contains(t, stderr(), "exited with status 5") // the launcher waits for the output now
	signals <- syscall.SIGTERM
	var failure *Failure
	require.ErrorAs(t, <-ended, &failure)
	require.Equal(t, syscall.SIGTERM, failure.Asked)
}

// Neither an end that must first be reported in the output nor a start that fails waits for what nobody takes: the end
// of the job's time, or a signal, ends it.
func TestUntakenOutputKeepsNoJob(t *testing.T) {
	for name, change := range map[string]func(*Job){
		"reports": func(j *Job) {
			j.Grace = time.Millisecond
			j.Reported = func(int) bool { return false }
		},
		"failed start": func(j *Job) {
			j.World = 2
			out := j.Stdout.(*held)
			j.Files = func(rank int) ([]*os.File, error) {
				if rank == 1 {
					<-out.entered
					return nil, os.ErrInvalid
				}
				return nil, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			j, out, _ := untakenJob(t, "echo output")
			defer close(out.released)
			change(&j)
			if j.Files == nil {
				go func() { <-out.entered }()
			}
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- Run(ctx, j, nil) }()
			select {
			case err := <-ended:
				require.Error(t, err)
			case <-time.After(30 * time.Second):
				t.Fatal("the job waits for its output")
			}
		})
	}
}
