package launch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/terminaltest"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestMain(m *testing.M) {
	if os.Getenv("SHUNT_TEST_JOIN") != "" { // a rank of a test
		if err := join(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func shell(world int, script string) (Job, *bytes.Buffer) {
	var out bytes.Buffer
	return Job{World: world, Path: "sh", Args: []string{"-c", script}, Label: "test", Stdout: &out, Stderr: &out,
		Prefix: true, Grace: 100 * time.Millisecond}, &out
}

func lines(b *bytes.Buffer) []string {
	list := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	sort.Strings(list)
	return list
}

func TestRanksKnowTheirPlace(t *testing.T) {
	t.Setenv("SHUNT_RANK", "77")
	t.Setenv("LOCAL_RANK", "78") // of a launcher around this one
	t.Setenv("MASTER_ADDR", "elsewhere")
	t.Setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
	j, out := shell(3, `test $TORCHELASTIC_USE_AGENT_STORE = False || exit 1; test $RANK = $SHUNT_RANK && test $WORLD_SIZE = 3 && test $MASTER_ADDR = 127.0.0.1 && test $MASTER_PORT -gt 0 || exit 1; echo $SHUNT_RANK of $SHUNT_WORLD; test $LOCAL_RANK = $SHUNT_RANK && test $LOCAL_WORLD_SIZE = 3 || exit 1; case $SHUNT_ID in unix://@shunt-run-*) ;; *) exit 1;; esac`)
	require.NoError(t, Run(context.Background(), j, nil))
	require.Equal(t, []string{"[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"}, lines(out))
}

func TestPretendedHosts(t *testing.T) {
	j, out := shell(4, `echo $SHUNT_HOST_ID`)
	j.Hosts = 2
	require.NoError(t, Run(context.Background(), j, nil))
	require.Equal(t, []string{"[0] host0", "[1] host0", "[2] host1", "[3] host1"}, lines(out))
}

func TestFirstFailureEndsTheJob(t *testing.T) {
	j, _ := shell(3, `if [ $SHUNT_RANK = 1 ]; then kill -9 $$; fi; exec sleep 300`)
	began := time.Now()
	err := Run(context.Background(), j, nil)
	require.Less(t, time.Since(began), 5*time.Second)
	var failure *Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 1, failure.First.Rank)
	require.Equal(t, syscall.SIGKILL, failure.First.Signal)
	require.Equal(t, 137, failure.Status())
	require.Contains(t, err.Error(), "test: rank 1 (pid ")
	require.Contains(t, err.Error(), "was ended by signal 9 (killed)")
	require.Contains(t, err.Error(), "test: rank 2 (pid "+strconv.Itoa(failure.Exits[2].PID)+") had to be ended")
	for _, e := range failure.Exits {
		requireGone(t, e.PID)
	}
}

// Ranks that report the failure themselves in time are not ended.
func TestSurvivorsMayReport(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	j, out := shell(2, `if [ $SHUNT_RANK = 1 ]; then exec 9>`+fifo+`; exit 5; fi; cat `+fifo+`; echo saw it; exit 3`)
	j.Grace = time.Minute
	err := Run(context.Background(), j, nil)
	var failure *Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, []string{"[0] saw it"}, lines(out))
	require.False(t, failure.Exits[0].Ended)
	require.Equal(t, 3, failure.Exits[0].Status)
	require.Equal(t, 5, failure.Exits[1].Status)
}

// A rank that ignores SIGTERM is killed.
func TestStubbornRankIsKilled(t *testing.T) {
	deaf := filepath.Join(t.TempDir(), "deaf") // says that the rank ignores the signal
	require.NoError(t, unix.Mkfifo(deaf, 0o600))
	j, _ := shell(2, `if [ $SHUNT_RANK = 0 ]; then cat `+deaf+`; exit 4; fi; trap '' TERM; : >`+deaf+
		`; while :; do sleep 300; done`)
	err := Run(context.Background(), j, nil)
	var failure *Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 4, failure.Status())
	require.Equal(t, syscall.SIGKILL, failure.Exits[1].Signal)
	require.True(t, failure.Exits[1].Ended)
	require.Contains(t, err.Error(), "\ntest: rank 1 (pid "+strconv.Itoa(failure.Exits[1].PID)+
		") had to be killed: SIGTERM did not end it")
}

func TestSignalsAreForwarded(t *testing.T) {
	out := &notifyingBuffer{found: make(chan struct{}), want: 2}
	j := Job{World: 2, Path: "sh", Label: "test", Stdout: out, Stderr: out, Prefix: true,
		Args: []string{"-c", `trap 'echo usr1; exit 0' USR1; echo ready; while :; do :; done`}}
	signals := make(chan os.Signal, 1)
	go func() {
		<-out.found
		signals <- syscall.SIGUSR1
	}()
	require.NoError(t, Run(context.Background(), j, signals))
	require.Equal(t, []string{"[0] ready", "[0] usr1", "[1] ready", "[1] usr1"}, lines(&out.buffer))
}

// within has the same signal again be the same request for that time.
func within(t *testing.T, length time.Duration) {
	before := oneRequest
	oneRequest = length
	t.Cleanup(func() { oneRequest = before })
}

// A signal that comes twice at once, as from timeout or by way of a wrapper, asks for the end once: it ends no rank
// that handles it.
func TestSignalTwiceAtOnceIsOneRequest(t *testing.T) {
	within(t, time.Hour)
	out := &notifyingBuffer{found: make(chan struct{}), want: 2}
	j := Job{World: 2, Path: "sh", Label: "test", Stdout: out, Stderr: out, Prefix: true,
		Args: []string{"-c", `trap : INT; trap 'exit 0' USR1; echo ready; while :; do :; done`}}
	signals := make(chan os.Signal, 3)
	go func() {
		<-out.found
		signals <- syscall.SIGINT
		signals <- syscall.SIGINT
		signals <- syscall.SIGUSR1
	}()
	require.NoError(t, Run(context.Background(), j, signals))
}

// The first SIGINT is the ranks' to handle; a second one after a while ends them.
func TestSecondInterruptEnds(t *testing.T) {
	within(t, 0)
	out := &notifyingBuffer{found: make(chan struct{}), want: 2}
	j := Job{World: 2, Path: "sh", Label: "test", Stdout: out, Stderr: out, Prefix: true,
		Args: []string{"-c", `trap '' INT; echo ready; while :; do :; done`}}
	signals := make(chan os.Signal, 2)
	go func() {
		<-out.found
		signals <- syscall.SIGINT
		signals <- syscall.SIGINT
	}()
	err := Run(context.Background(), j, signals)
	var failure *Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, syscall.SIGTERM, failure.First.Signal)
}

// notifyingBuffer closes found after so many writes.
type notifyingBuffer struct {
	lock   sync.Mutex
	buffer bytes.Buffer
	want   int
	found  chan struct{}
}

func (b *notifyingBuffer) Write(p []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	if b.want--; b.want == 0 {
		close(b.found)
	}
	return b.buffer.Write(p)
}

func TestEndOfContextEndsTheJob(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	j, _ := shell(2, `exec sleep 300`)
	err := Run(ctx, j, nil)
	var failure *Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, syscall.SIGTERM, failure.First.Signal)
	require.Contains(t, err.Error(), ", as the job of 2 was to end\n")
	require.NotContains(t, err.Error(), "ended with it")
	for _, e := range append(failure.Exits, failure.First) {
		require.True(t, e.Ended, e)
	}
}

func TestStdinAndFiles(t *testing.T) {
	j, out := shell(2, `cat; echo from $SHUNT_RANK >&3`)
	j.Stdin = strings.NewReader("typed\n")
	reads := make([]*os.File, 2)
	j.Files = func(rank int) ([]*os.File, error) {
		r, w, err := os.Pipe()
		reads[rank] = r
		return []*os.File{w}, err
	}
	require.NoError(t, Run(context.Background(), j, nil))
	require.Equal(t, []string{"[0] typed"}, lines(out))
	for rank, r := range reads {
		text := make([]byte, 64)
		n, err := r.Read(text)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("from %d\n", rank), string(text[:n]))
		require.NoError(t, r.Close())
	}
}

func TestBadJobs(t *testing.T) {
	err := Run(context.Background(), Job{World: 0, Path: "sh", Label: "test"}, nil)
	require.ErrorIs(t, err, plugin.InvalidArgument)
	err = Run(context.Background(), Job{World: 1, Path: "/does/not/exist", Label: "test"}, nil)
	require.ErrorIs(t, err, plugin.InvalidArgument)
	require.ErrorContains(t, err, "no such file")
	j := Job{World: 2, Path: "sleep", Args: []string{"300"}, Label: "test"}
	j.Files = func(rank int) ([]*os.File, error) {
		if rank == 1 {
			return nil, plugin.Errorf(plugin.System, "no file for rank 1")
		}
		return nil, nil
	}
	require.ErrorContains(t, Run(context.Background(), j, nil), "no file for rank 1")
}

// A job that could not be started leaves no descriptor open.
func TestFailedStartLeavesNoDescriptor(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it closes files that nobody has
	count := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(open)
	}
	j, _ := shell(1, "exit 0")
	j.Lifeline = func(int, int) []byte { return nil }
	j.Files = func(int) ([]*os.File, error) { return nil, plugin.Errorf(plugin.System, "no file") }
	require.Error(t, Run(context.Background(), j, nil))
	before := count()
	for range 10 {
		require.Error(t, Run(context.Background(), j, nil))
	}
	require.Eventually(t, func() bool { return count() <= before+5 }, 10*time.Second, 10*time.Millisecond)
}

// Ranks that write word by word, as an unbuffered Python does, to a file and
// to a pipe: their lines arrive whole.
func TestWordsOfRanksDoNotMix(t *testing.T) {
	const world, count = 4, 40
	script := `i=0; while [ $i -lt 40 ]; do printf rank; printf " "; printf $SHUNT_RANK; printf " word "; printf $i >&2; printf " " >&2; printf $i; echo; printf "err\n" >&2; i=$((i+1)); done; printf "the end of $SHUNT_RANK"`
	stdout, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer stdout.Close()
	r, stderr, err := os.Pipe()
	require.NoError(t, err)
	var piped bytes.Buffer
	read := make(chan error, 1)
	go func() {
		_, err := piped.ReadFrom(r)
		read <- err
	}()
	require.NoError(t, Run(context.Background(), Job{World: world, Path: "sh", Args: []string{"-c", script}, Label: "test",
		Stdout: stdout, Stderr: stderr}, nil))
	require.NoError(t, stderr.Close())
	require.NoError(t, <-read)
	require.NoError(t, r.Close())
	var want, wantErr []string
	for rank := range world {
		for i := range count {
			want = append(want, fmt.Sprintf("rank %d word %d", rank, i))
			wantErr = append(wantErr, fmt.Sprintf("%d err", i))
		}
		want = append(want, fmt.Sprintf("the end of %d", rank))
	}
	text, err := os.ReadFile(stdout.Name())
	require.NoError(t, err)
	require.ElementsMatch(t, want, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"))
	require.ElementsMatch(t, wantErr, strings.Split(strings.TrimSuffix(piped.String(), "\n"), "\n"))
}

// Without a prefix a rank's output arrives byte by byte as it was written.
func TestOutputOfOneRankIsUnchanged(t *testing.T) {
	var out bytes.Buffer
	long := 3*maxLine + 7
	script := fmt.Sprintf(`printf "a\n\nb"; head -c %d /dev/zero | tr '\0' x; printf "\n\nno newline"`, long)
	require.NoError(t, Run(context.Background(), Job{World: 1, Path: "sh", Args: []string{"-c", script}, Label: "test",
		Stdout: &out, Stderr: &out}, nil))
	require.Equal(t, "a\n\nb"+strings.Repeat("x", long)+"\n\nno newline", out.String())
}

// Where the launcher writes to a terminal its ranks write to it themselves, and see that it is one.
func TestRanksGetTheTerminalItself(t *testing.T) {
	_, terminal := terminaltest.Open(t)
	var out bytes.Buffer
	j := Job{World: 2, Path: "sh", Args: []string{"-c", "test -t 1 && test ! -t 2"}, Label: "test", Stdout: terminal,
		Stderr: &out}
	require.NoError(t, Run(context.Background(), j, nil))
	j.Prefix = true
	require.Error(t, Run(context.Background(), j, nil))
}

// What a program in Python has printed is not lost when it is killed, and is seen before. It keeps its output back
// where the environment asks for that.
func TestPythonPrintsAtOnce(t *testing.T) {
	python, err := exec.LookPath("python3")
	require.NoError(t, err)
	script := "import os, signal; print('text', 1, end=''); print(); os.kill(os.getpid(), signal.SIGKILL)"
	const text = "[0] text 1\n"
	for env, want := range map[string]string{"A=b": text, "PYTHONUNBUFFERED=": "", "PYTHONUNBUFFERED=yes": text} {
		t.Setenv("PYTHONUNBUFFERED", "") // is back after the test
		require.NoError(t, os.Unsetenv("PYTHONUNBUFFERED"))
		var out bytes.Buffer
		require.Error(t, Run(context.Background(), Job{World: 1, Path: python, Args: []string{"-c", script}, Label: "test",
			Stdout: &out, Stderr: &out, Env: []string{env}, Prefix: true}, nil))
		require.Equal(t, want, out.String(), env)
	}
}

func TestLinesStayWhole(t *testing.T) {
	var out bytes.Buffer
	to := &outlet{to: &out, lock: new(sync.Mutex)}
	w := newLineWriter(to, "[7] ")
	write := func(pieces ...string) {
		for _, piece := range pieces {
			n, err := w.Write([]byte(piece))
			require.NoError(t, err)
			require.Equal(t, len(piece), n)
		}
	}
	long := strings.Repeat("x", maxLine)
	require.Len(t, long, 1<<20, "as the help says")
	write("a", "b\nc", "\n\n", long, "more\n", long)
	require.NoError(t, newLineWriter(to, "[8] ").emit([]byte("hello\n")))
	write("rest\n", "tail")
	w.flush()
	write("short", long[10:], "\n", "a")
	require.LessOrEqual(t, cap(w.pending), keptRoom, "room for a long line goes with it")
	w.flush()
	require.Equal(t, "[7] ab\n[7] c\n[7] \n[7] "+long+"more\n[7] "+long+"\n[8] hello\n[7] rest\n[7] tailshort"+long[10:]+
		"\n[7] a", out.String())
}

// Ctrl-Z stops the ranks and the launcher, and what continues it continues them.
func TestStoppedLauncherStopsItsRanks(t *testing.T) {
	if os.Getenv("LAUNCH_CHILD") != "" {
		signals := make(chan os.Signal, 2)
		signal.Notify(signals, syscall.SIGTSTP, syscall.SIGCONT)
		require.NoError(t, Run(context.Background(), Job{World: 2, Path: "sh", Label: "test",
			Args: []string{"-c", "sleep 300 & trap 'kill $!; exit 0' USR1; echo $$; wait"}}, signals))
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestStoppedLauncherStopsItsRanks$")
	cmd.Env = append(os.Environ(), "LAUNCH_CHILD=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	pids := make([]int, 2)
	for i := range pids {
		_, err := fmt.Fscanln(stdout, &pids[i])
		require.NoError(t, err)
	}
	pids = append(pids, cmd.Process.Pid)
	// They start no process meanwhile: one that waits for vfork is stopped later.
	stopped := func(want bool) func() bool {
		return func() bool {
			for _, pid := range pids {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				if err != nil || strings.Contains(string(stat), ") T ") != want {
					return false
				}
			}
			return true
		}
	}
	for range 2 {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTSTP))
		require.Eventually(t, stopped(true), 5*time.Second, time.Millisecond)
		require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
		require.Eventually(t, stopped(false), 5*time.Second, time.Millisecond)
	}
	for _, pid := range pids[:2] {
		require.NoError(t, syscall.Kill(pid, syscall.SIGUSR1))
	}
	_, _ = io.Copy(io.Discard, stdout)
	require.NoError(t, cmd.Wait())
}

// Ctrl-Z stops nothing where no shell could continue it, as of a launcher that ssh -t or tmux has started itself.
func TestCtrlZWithoutAShell(t *testing.T) {
	if os.Getenv("LAUNCH_CHILD") != "" {
		signals := make(chan os.Signal, 2)
		signal.Notify(signals, syscall.SIGTSTP, syscall.SIGUSR1)
		require.NoError(t, Run(context.Background(), Job{World: 1, Path: "sh", Label: "test",
			Args: []string{"-c", "trap 'kill $!; exit 0' USR1; sleep 300 & echo began; wait"}}, signals))
		return
	}
	_, far := terminaltest.Open(t)
	cmd := exec.Command(os.Args[0], "-test.run", "^TestCtrlZWithoutAShell$")
	cmd.Env = append(os.Environ(), "LAUNCH_CHILD=1")
	cmd.Stdin, cmd.SysProcAttr = far, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
	_, err = fmt.Fscanln(stdout, new(string))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTSTP))
	require.NoError(t, cmd.Process.Signal(syscall.SIGUSR1))
	_, _ = io.Copy(io.Discard, stdout)
	require.NoError(t, cmd.Wait())
}

// A rank that ends before all have joined ends the waiting of the others at
// once, whether it is the one they ask or another, and with whatever status.
func TestRanksHearOfOneThatWillNotJoin(t *testing.T) {
	for _, missing := range []int{0, 2} {
		for _, status := range []int{0, 3} {
			j, out := shell(3, fmt.Sprintf(`test $SHUNT_RANK = %d && exit %d; exec %s`, missing, status, os.Args[0]))
			j.Env = append(j.Env, "SHUNT_TEST_JOIN=1")
			j.Grace = 20 * time.Second
			began := time.Now()
			_ = Run(context.Background(), j, nil) // it fails with the ranks
			want := fmt.Sprintf("rank %d (pid ", missing)
			told := 0
			for _, line := range lines(out) {
				if !strings.Contains(line, "ERROR") && strings.Contains(line, want) &&
					strings.Contains(line, fmt.Sprintf("exited with status %d", status)) && strings.Contains(line, "joined") {
					told++
				}
			}
			require.Equal(t, 2, told, out.String())
			require.Less(t, time.Since(began), 8*time.Second)
		}
	}
}

// The ranks of one machine listen where no process of another one can connect.
func TestNothingListensOnTheNetwork(t *testing.T) {
	j, out := shell(2, "exec "+os.Args[0])
	j.Env = append(j.Env, "SHUNT_TEST_JOIN=1")
	require.NoError(t, Run(context.Background(), j, nil), out.String())
	require.Equal(t, 2, strings.Count(out.String(), "joined, and listens nowhere"), out.String())
}

// join is a rank of the tests above. It fails if it listens for TCP once it has joined.
func join() error {
	s, err := bootstrap.Join(context.Background(), bootstrap.Config{URL: "env", Timeout: 30 * time.Second})
	if err != nil {
		return err
	}
	own, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return err
	}
	for _, socket := range listening() {
		for _, fd := range own {
			if link, _ := os.Readlink(fd); link == "socket:["+socket+"]" {
				return fmt.Errorf("%s listens for TCP", link)
			}
		}
	}
	fmt.Println("joined, and listens nowhere")
	return s.Close()
}

// listening returns the inodes of the TCP sockets of this machine that listen.
func listening() []string {
	var inodes []string
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // no IPv6
		}
		for _, line := range strings.Split(string(text), "\n")[1:] {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" {
				inodes = append(inodes, f[9])
			}
		}
	}
	return inodes
}
