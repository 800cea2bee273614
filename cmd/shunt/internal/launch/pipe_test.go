package launch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slow is a reader that takes nothing for a while at first, such as a pager. The process ends meanwhile.
type slow struct {
	bytes.Buffer
	once sync.Once
}

func (s *slow) Write(p []byte) (int, error) {
	s.once.Do(func() { time.Sleep(1500 * time.Millisecond) })
	return s.Buffer.Write(p)
}

// What a rank has written arrives, however late it is taken, also where a process outside the rank's group holds the
// output open, which does not keep the job.
func TestOutputArrivesAtASlowReader(t *testing.T) {
	for _, script := range []string{"yes | head -n 30000", "setsid sleep 300 & echo $! >&2; yes | head -n 30000"} {
		var out slow
		var pid bytes.Buffer
		require.NoError(t, Run(context.Background(), Job{World: 1, Path: "sh", Args: []string{"-c", script}, Label: "test",
			Stdout: &out, Stderr: &pid}, nil))
		if pid.Len() > 0 {
			left, err := strconv.Atoi(strings.TrimSpace(pid.String()))
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(left, syscall.SIGKILL))
		}
		require.Equal(t, 60000, out.Len())
	}
}

// stuck is a reader that takes nothing.
type stuck struct{ ctx context.Context }

func (s stuck) Write([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, io.ErrClosedPipe
}

// Where nothing takes the output, the failure of a rank still ends the others, and a signal ends the launcher.
func TestOutputThatNothingTakes(t *testing.T) {
	for script, want := range map[string]string{
		"echo x": "test: interrupt before all output of the ranks was taken",
		"echo x; test $SHUNT_RANK = 1 || exit 3; exec sleep 300": "exited with status 3",
	} {
		signals, result := make(chan os.Signal), make(chan error, 1)
		j, _ := shell(2, script)
		j.Stdout = stuck{t.Context()}
		dir := t.TempDir()
		j.Args[1] = "echo $$ >" + dir + "/$SHUNT_RANK; " + script
		go func() { result <- Run(context.Background(), j, signals) }()
		for rank := range 2 {
			pid := 0
			require.Eventually(t, func() bool {
				text, _ := os.ReadFile(filepath.Join(dir, strconv.Itoa(rank)))
				_, err := fmt.Sscanln(string(text), &pid)
				return err == nil
			}, 5*time.Second, time.Millisecond)
			requireGone(t, pid)
		}
		late := time.After(20 * time.Second)
		for ended := false; !ended; {
			select {
			case signals <- syscall.SIGINT:
			case err := <-result:
				require.ErrorContains(t, err, want)
				ended = true
			case <-late:
				t.Fatal("the launcher waits for ever")
			}
		}
	}
}
