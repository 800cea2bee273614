package bootstrap

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// company is a world of processes that a test controls.
type company struct {
	t     *testing.T
	ranks []*process
}

// newCompany makes a world of processes, with more environment variables.
func newCompany(t *testing.T, world int, url string, env ...string) *company {
	t.Helper()
	c := &company{t: t}
	for rank := range world {
		c.ranks = append(c.ranks, start(t, "commands", append(rankEnv(rank, world, url), env...)...))
	}
	for rank, p := range c.ranks {
		p.expect(fmt.Sprintf("joined %d %d", rank, world))
	}
	return c
}

// tell gives a command to the ranks.
func (c *company) tell(command string, ranks ...int) {
	c.t.Helper()
	for _, rank := range ranks {
		if _, err := fmt.Fprintln(c.ranks[rank].stdin, command); err != nil {
			c.t.Fatal(err)
		}
	}
}

// all gives a command to ranks, each of which must reply so within two seconds.
func (c *company) all(want, command string, ranks ...int) {
	c.t.Helper()
	c.within(2*time.Second, want, command, ranks...)
}

func (c *company) within(limit time.Duration, want, command string, ranks ...int) {
	c.t.Helper()
	began := time.Now()
	c.tell(command, ranks...)
	for _, rank := range ranks {
		if got := c.ranks[rank].line(); got != want && !(strings.HasSuffix(want, "…") &&
			strings.HasPrefix(got, strings.TrimSuffix(want, "…"))) {
			c.t.Errorf("%s: rank %d says %q, want %q", command, rank, got, want)
		}
	}
	if since := time.Since(began); since > limit {
		c.t.Errorf("%s took %v, want at most %v", command, since, limit)
	}
}

func (c *company) kill(ranks ...int) {
	c.t.Helper()
	for _, rank := range ranks {
		if err := c.ranks[rank].cmd.Process.Kill(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// died returns the error that survivors get of a dead rank.
func (c *company) died(rank int) string {
	return fmt.Sprintf("%d %d %s", rank, c.ranks[rank].cmd.Process.Pid, plugin.PeerDied)
}

// leave ends the ranks in peace.
func (c *company) leave(ranks ...int) {
	c.t.Helper()
	for _, rank := range ranks {
		if err := c.ranks[rank].stdin.Close(); err != nil {
			c.t.Error(err)
		}
	}
	for _, rank := range ranks {
		if err := c.ranks[rank].cmd.Wait(); err != nil {
			c.t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func from(first, world int) (ranks []int) {
	for rank := first; rank < world; rank++ {
		ranks = append(ranks, rank)
	}
	return ranks
}

func (c *company) signal(s syscall.Signal, rank int) {
	c.t.Helper()
	if err := c.ranks[rank].cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// stop stops a rank.
func (c *company) stop(rank int) {
	c.t.Helper()
	c.signal(syscall.SIGSTOP, rank)
	c.stopped(rank)
}

// stopped waits until a rank has stopped: after the signal was sent it may run on for a while.
func (c *company) stopped(rank int) {
	c.t.Helper()
	process := c.ranks[rank].cmd.Process
	stopped := make(chan error, 1)
	go func() { stopped <- unix.Waitid(unix.P_PID, process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil) }()
	select {
	case err := <-stopped:
		if err != nil {
			c.t.Fatalf("rank %d did not stop: %v", rank, err)
		}
	case <-short(c.t, 20*time.Second).Done():
		c.t.Fatalf("rank %d runs on, want it stopped", rank)
	}
}

// resume continues a stopped rank.
func (c *company) resume(rank int) {
	c.t.Helper()
	c.signal(syscall.SIGCONT, rank)
}

func meetingPlaces(t *testing.T) map[string]string {
	return map[string]string{"file": "file://" + t.TempDir() + "/id", "unix": fmt.Sprintf("unix://@shunt-succession-%d-%s",
		os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))}
}
