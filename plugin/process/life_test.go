package process

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/probe"
)

func itoa(i int) string { return strconv.Itoa(i) }

func within(t *testing.T, limit time.Duration, c <-chan struct{}) time.Duration {
	t.Helper()
	begin := time.Now()
	if !waitFor(c, limit) {
		t.Fatalf("not done within %v", limit)
	}
	return time.Since(begin)
}

func TestKilledPluginIsNoticedAndNamed(t *testing.T) {
	died := make(chan error, 1)
	c := start(t, "chatty", func(c *Config) { c.OnExit = func(err error) { died <- err } })
	e := open(t, c)
	require.NoError(t, unix.Kill(c.PID(), unix.SIGKILL))
	took := within(t, 2*time.Second, c.Done())
	t.Logf("noticed after %v", took)

	err := c.Err()
	require.ErrorIs(t, err, plugin.PluginDied)
	require.ErrorContains(t, err, fmt.Sprintf("plugin probe (pid %d) was killed by signal 9 (killed)", c.PID()))
	require.ErrorContains(t, err, "a plain line", "the end of stderr is quoted")
	require.Equal(t, err, <-died)

	_, err = e.Prepare(context.Background(), allReduce, probe.Algorithm)
	require.ErrorIs(t, err, plugin.PluginDied)
	_, err = c.Transport().Open(context.Background(), openConfig())
	require.ErrorIs(t, err, plugin.PluginDied)
	require.ErrorIs(t, e.Close(), plugin.PluginDied)
	require.Len(t, c.Transport().Info().Name, 5)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
}

// An endpoint that graphs have kept open is closed after its plugin.
func TestEndpointsEndWithAPluginThatIsClosed(t *testing.T) {
	c := start(t, "probe")
	before := descriptors(t, os.Getpid())
	e := open(t, c)
	require.NoError(t, c.Close())
	require.NoError(t, e.Close())
	require.Less(t, descriptors(t, os.Getpid()), before, "with its descriptors")
}

// Calls that meet a Close, which may take seconds, find a plugin that is closed, and not a connection that is gone.
func TestCallsBesideCloseFindAPluginThatIsClosed(t *testing.T) {
	c := start(t, "stubborn", func(c *Config) { c.KillTimeout = 200 * time.Millisecond })
	e := open(t, c)
	opened := make(chan error, 1)
	go func() {
		_, err := c.Transport().Open(context.Background(), openConfig(probe.OptionHang, ""))
		opened <- err
	}()
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	eventually(t, 5*time.Second, "the connection is gone", func() bool {
		return c.conn.GetState() == connectivity.Shutdown
	})
	_, err := e.Prepare(context.Background(), allReduce, probe.Algorithm)
	require.ErrorIs(t, err, plugin.Closed)
	require.NotErrorIs(t, err, context.Canceled)
	require.NoError(t, e.Close(), "it has ended with the plugin")
	require.ErrorIs(t, <-opened, plugin.Closed)
	require.ErrorContains(t, <-closed, "did not shut down")
}

func TestCallInFlightFailsWhenThePluginDies(t *testing.T) {
	c := start(t, "probe")
	e := open(t, c, probe.OptionCrash, "")
	_, err := e.Prepare(context.Background(), allReduce, probe.Algorithm)
	require.ErrorIs(t, err, plugin.PluginDied)
	require.ErrorContains(t, err, "prepare all_reduce/one_shot on rank 1")
	require.ErrorContains(t, err, "exited with status 2")
	require.ErrorContains(t, err, "nil pointer dereference")
	require.LessOrEqual(t, len(c.runner.errLines.Tail()), maxTail)
}

func TestStoppedPluginIsReportedAndKilled(t *testing.T) {
	c := start(t, "probe")
	e := open(t, c, probe.OptionWedge, "")
	begin := time.Now()
	_, err := e.Prepare(context.Background(), allReduce, probe.Algorithm)
	took := time.Since(begin)
	require.ErrorIs(t, err, plugin.PluginDied)
	require.ErrorContains(t, err, "does not respond")
	require.ErrorContains(t, err, "is stopped")
	require.Less(t, took, 3*time.Second)
	eventually(t, 5*time.Second, "the process is killed", func() bool { return gone(c.PID()) })
	t.Logf("reported after %v", took)
}

// A plugin that is not stopped but wedged is named long before any silent one
// would be.
func TestWedgedPluginIsReportedAndKilled(t *testing.T) {
	for how, states := range map[string][]string{
		"sleep": {"the process sleeps and does not wake up"},
		// the latter on a machine that is too busy to let it spin
		"spin": {"the process spins without end", "the process runs but is wedged"},
	} {
		t.Run(how, func(t *testing.T) {
			c := start(t, "probe", func(c *Config) { c.PingInterval, c.PingTimeout = 50*time.Millisecond, 400*time.Millisecond })
			e := open(t, c, probe.OptionWedge, how)
			begin := time.Now()
			_, err := e.Prepare(context.Background(), allReduce, probe.Algorithm)
			require.ErrorIs(t, err, plugin.PluginDied)
			require.True(t, slices.ContainsFunc(states, func(state string) bool { return strings.Contains(err.Error(), state) }),
				err.Error())
			eventually(t, 5*time.Second, "the process is killed", func() bool { return gone(c.PID()) })
			t.Logf("reported after %v", time.Since(begin))
		})
	}
}

// The error of a plugin that has ended or was killed quotes the end of its stderr, whatever the plugin was doing.
// TestCrashIsQuotedBeforeItsStacks covers the start.
func TestStderrIsQuotedInEveryPhase(t *testing.T) {
	stop := func(t *testing.T, c *Client) {
		t.Helper()
		require.NoError(t, unix.Kill(c.PID(), unix.SIGSTOP))
		eventually(t, 5*time.Second, "the plugin is stopped", c.runner.child.stopped)
	}
	for _, test := range []struct {
		phase, says string
		end         func(*testing.T, *Client) error
	}{
		{"idle", "was killed by signal 9", func(t *testing.T, c *Client) error {
			require.NoError(t, unix.Kill(c.PID(), unix.SIGKILL))
			within(t, 5*time.Second, c.Done())
			return c.Err()
		}},
		{"ping", "does not respond: no sign of life", func(t *testing.T, c *Client) error {
			stop(t, c)
			require.False(t, c.alive(grpc_health_v1.NewHealthClient(c.conn)))
			return c.Err()
		}},
		{"call", "did not respond to prepare all_reduce/one_shot", func(t *testing.T, c *Client) error {
			e := open(t, c)
			stop(t, c)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := e.Prepare(ctx, allReduce, probe.Algorithm)
			return err
		}},
		{"descriptors", "was killed: ", func(t *testing.T, c *Client) error {
			c.Transport().Supports(allReduce)
			within(t, 5*time.Second, c.Done())
			return c.Err()
		}},
		{"end", "exited with status 3 as it was closed", func(_ *testing.T, c *Client) error { return c.Close() }},
		{"end that does not come", "did not shut down within", func(t *testing.T, c *Client) error {
			stop(t, c)
			c.config.KillTimeout = 100 * time.Millisecond
			return c.Close()
		}},
	} {
		t.Run(test.phase, func(t *testing.T) {
			c := start(t, "bad end", func(c *Config) { c.PingInterval, c.PingTimeout = -1, 100*time.Millisecond })
			eventually(t, 5*time.Second, "stderr", func() bool { return c.runner.errLines.Tail() != "" })
			err := test.end(t, c)
			require.ErrorContains(t, err, test.says)
			require.ErrorContains(t, err, "the end of its stderr:\na plain line")
		})
	}
}

// looked is a process as one look after the other finds it.
type looked struct {
	letters string // T: stopped, S: asleep, s: asleep, but this process is late, R: awake; one for each look
	used    time.Duration
	at      int
}

func (l *looked) stopped() bool      { l.at++; return l.letters[l.at-1] == 'T' }
func (l *looked) asleep() bool       { return l.letters[l.at-1] != 'R' }
func (l *looked) cpu() time.Duration { return time.Duration(l.at) * l.used }

// A process that is awake whenever it is looked at, and that a busy machine
// gives little time, may yet respond.
func TestSuspicion(t *testing.T) {
	for _, test := range []struct {
		letters string
		used    time.Duration // between looks, which are a second apart; three seconds are the limit
		want    string        // at the last of them
	}{
		{"RRT", 0, "is stopped"},
		{"SSS", 0, "sleeps and does not wake up"},
		{"RRSSRS", 0, "sleeps and does not wake up"},
		{"SSsSRRS", 300 * time.Millisecond, ""},
		{"RRRRRRSRS", 300 * time.Millisecond, ""},
		{"RRR", time.Second, "spins without end"},
		{"RR", 16 * time.Second, ""},
		{"RRRRRRRRR", 300 * time.Millisecond, ""},
		{"RRRRRRRRRR", 300 * time.Millisecond, "spins without end"},
	} {
		s := suspicion{timeout: time.Second}
		p := &looked{letters: test.letters, used: test.used}
		for i := range test.letters {
			got := s.look(p, time.Duration(i+1)*time.Second, test.letters[i] != 's')
			if last := i == len(test.letters)-1; last && got != test.want || !last && got != "" {
				t.Errorf("%s: look %d finds %q", test.letters, i, got)
			}
		}
	}
}

// The time in which this process was late itself does not count.
func TestSuspicionOfAProcessThatIsLate(t *testing.T) {
	s := suspicion{timeout: time.Second}
	for _, test := range []struct{ since, pause, ran time.Duration }{
		{time.Second, time.Second, time.Second},
		{500 * time.Millisecond, 250 * time.Millisecond, 1250 * time.Millisecond},
		{time.Hour, 250 * time.Millisecond, 1500 * time.Millisecond},
	} {
		if late := s.late(test.since, test.pause); late != (test.since == time.Hour) || s.ran != test.ran {
			t.Errorf("after %v of %v: late %v, ran %v", test.since, test.pause, late, s.ran)
		}
	}
}

func TestEcho(t *testing.T) {
	e := newEcho()
	defer e.close()
	require.False(t, e.prompt(), "nothing was sent before")
	for range 3 {
		eventually(t, 5*time.Second, "the byte comes back", func() bool { return len(e.back) == 1 })
		require.True(t, e.prompt())
	}
	eventually(t, 5*time.Second, "the byte comes back", func() bool { return len(e.back) == 1 })
	<-e.back // another call has it: it is not back yet
	require.False(t, e.prompt())
	var none *echo
	require.False(t, none.prompt())
	none.close()
}

func TestProcessorTime(t *testing.T) {
	require.Equal(t, 70*time.Millisecond, timeOf([]byte("1 (a) b) R 2 3 4 5 6 7 8 9 10 11 3 4 0 0 20 0 1")))
	require.Zero(t, timeOf([]byte("1 (a) R 2 3")))
	require.Zero(t, timeOf([]byte("1 (a) R 2 3 4 5 6 7 8 9 10 11 x 4 0 0 20 0 1")))
	require.False(t, allAsleep(os.Getpid()), "this thread runs")
	require.False(t, allAsleep(-1))
}

func TestCloseIsBoundedWhateverThePluginDoes(t *testing.T) {
	quick := func(c *Config) { c.KillTimeout, c.PingInterval = 200*time.Millisecond, -1 }
	t.Run("stopped", func(t *testing.T) {
		c := start(t, "probe", quick)
		require.NoError(t, unix.Kill(c.PID(), unix.SIGSTOP))
		eventually(t, 5*time.Second, "the plugin is stopped", c.runner.child.stopped)
		begin := time.Now()
		err := c.Close()
		require.ErrorIs(t, err, plugin.Timeout)
		require.ErrorContains(t, err, "did not shut down within ")
		require.ErrorContains(t, err, "ms, the process is stopped; it was killed")
		require.Less(t, time.Since(begin), 2*time.Second)
		require.True(t, gone(c.PID()))
		require.ErrorIs(t, c.Err(), plugin.Closed)
		require.Equal(t, err, c.Close(), "Close is idempotent")
	})
	t.Run("does not exit", func(t *testing.T) {
		c := start(t, "stubborn", quick)
		err := c.Close()
		require.ErrorIs(t, err, plugin.Timeout)
		require.ErrorContains(t, err, "the process sleeps and does not wake up; it was killed")
		require.True(t, gone(c.PID()))
	})
	t.Run("spins", func(t *testing.T) {
		c := start(t, "spinning", quick)
		err := c.Close()
		require.ErrorIs(t, err, plugin.Timeout)
		require.ErrorContains(t, err, "; it was killed") // "spins without end", unless others keep the processor
		require.True(t, gone(c.PID()))
	})
	t.Run("slow", func(t *testing.T) { // it works for longer than KillTimeout, and than go-plugin would wait
		c := start(t, "slow end", func(c *Config) { c.KillTimeout, c.PingInterval = 2*time.Second, -1 })
		require.NoError(t, c.Close())
		require.True(t, c.runner.child.clean, "it shut down by itself")
	})
	t.Run("healthy", func(t *testing.T) {
		c := start(t, "probe")
		open(t, c)
		require.NoError(t, c.Close())
		require.True(t, c.runner.child.clean, "it shut down by itself")
		within(t, 0, c.Done())
		require.ErrorIs(t, c.Err(), plugin.Closed)
	})
}

// A grandchild that holds the pipes neither hides the plugin's death nor
// survives it.
func TestGrandchildDoesNotMaskACrash(t *testing.T) {
	c := start(t, "grandchild")
	var pid int
	eventually(t, 5*time.Second, "the grandchild's pid", func() bool {
		_, after, ok := strings.Cut(c.runner.errLines.Tail(), "grandchild ")
		if ok {
			pid, _ = strconv.Atoi(strings.Fields(after)[0])
		}
		return pid != 0
	})
	require.False(t, gone(pid))
	require.NoError(t, unix.Kill(c.PID(), unix.SIGKILL))
	within(t, 2*time.Second, c.Done())
	require.ErrorContains(t, c.Err(), "signal 9")
	eventually(t, 5*time.Second, "the grandchild is gone", func() bool { return gone(pid) })
	require.NoError(t, c.Close())
}

func TestKilledHostLeavesNoPlugin(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprintf("plugin stopped %v", stopped), func(t *testing.T) {
			config := testConfig("host")
			host := exec.Command(config.Path)
			host.Env = append(os.Environ(), config.Env...)
			host.Stderr = os.Stderr
			out, err := host.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, host.Start())
			line, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			require.NoError(t, err)
			require.False(t, gone(pid))
			if stopped {
				require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
			}
			require.NoError(t, host.Process.Kill())
			host.Wait()
			eventually(t, 5*time.Second, "the plugin is gone", func() bool { return gone(pid) })
		})
	}
}

// Even without the kernel's help a plugin notices that its host is gone.
func TestPluginWatchesItsHost(t *testing.T) {
	c := start(t, "probe")
	require.NoError(t, c.runner.descriptors.Close(), "as if the host had ended")
	within(t, 2*time.Second, c.Done())
	require.ErrorContains(t, c.Err(), "exited with status 0")
}

func TestRunDirectoryIsGoneOnceConnected(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "p") //nolint:usetesting // short: paths of sockets are bounded
	require.NoError(t, err)
	defer os.RemoveAll(base)
	t.Setenv("TMPDIR", base) // elsewhere other processes start plugins too
	c := start(t, "probe")
	require.True(t, strings.HasPrefix(c.runner.dir, base+"/"), c.runner.dir)
	require.NoDirExists(t, c.runner.dir)
	require.NoError(t, open(t, c).Close(), "the connection outlives its name")
	require.NoError(t, unix.Kill(c.PID(), unix.SIGKILL))
	<-c.Done()
	startFails(t, "exit")
	startFails(t, "garbage")
	left, err := os.ReadDir(base)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestSweepRemovesOnlyStaleRunDirectories(t *testing.T) {
	base := t.TempDir()
	now := time.Now()
	for name, age := range map[string]time.Duration{
		runDirPrefix + "old": time.Hour, runDirPrefix + "new": time.Minute, "other-old": time.Hour,
	} {
		require.NoError(t, os.MkdirAll(base+"/"+name+"/socket", 0o700))
		require.NoError(t, os.Chtimes(base+"/"+name, now.Add(-age), now.Add(-age)))
	}
	// Of a launcher of this library, and of a host that lives, however slow it is.
	require.NoError(t, os.Mkdir(base+"/shunt-run-1", 0o700))
	require.NoError(t, os.Chtimes(base+"/shunt-run-1", now.Add(-time.Hour), now.Add(-time.Hour)))
	t.Setenv("TMPDIR", base)
	living, err := makeRunDir()
	if len(base) > maxBase { // the others are of this machine
		living = &runDir{path: base + "/" + runDirPrefix + "living"}
		require.NoError(t, os.Mkdir(living.path, 0o700))
		living.lock, err = lockDir(living.path)
	}
	require.NoError(t, err)
	defer living.remove()
	require.NoError(t, os.Chtimes(living.path, now.Add(-time.Hour), now.Add(-time.Hour)))
	sweepRunDirs(base, now)
	require.DirExists(t, base+"/shunt-run-1")
	require.DirExists(t, living.path)
	require.NoDirExists(t, base+"/"+runDirPrefix+"old")
	require.DirExists(t, base+"/"+runDirPrefix+"new")
	require.DirExists(t, base+"/other-old")
}

// A server of another language has only the services that its author has added.
func TestPluginWithoutHealthServiceLives(t *testing.T) {
	c := start(t, "no health", func(c *Config) { c.PingInterval, c.KillTimeout = -1, 20*time.Millisecond })
	require.True(t, c.alive(grpc_health_v1.NewHealthClient(c.conn)), "%v", c.Err())
	require.NoError(t, c.Err())
}

// Servers of other languages reject a call when they are busy, and proxies and interceptors have statuses of their own.
func TestAnyStatusIsASignOfLife(t *testing.T) {
	c := start(t, "statuses", func(c *Config) { c.PingInterval, c.KillTimeout = -1, 20*time.Millisecond })
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		require.True(t, c.alive(grpc_health_v1.NewHealthClient(c.conn)), "%v: %v", code, c.Err())
	}
}
