package bootstrap

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// rankProcess runs a rank in a process of its own: it joins as the environment says,
// reports on stdout, then does what SHUNT_TEST_RANK_PROCESS says.
func rankProcess() int {
	switch os.Getenv("SHUNT_TEST_RANK_PROCESS") {
	case "stranger":
		return beStranger()
	case "without pidfd_open":
		return tell(withoutPidfd(unix.ENOSYS))
	case "forbidden pidfd_open":
		return tell(withoutPidfd(unix.EPERM))
	case leaderless:
		return endLeader()
	case "only IPv6":
		return tell(onlyIPv6())
	}
	if err := denyAsAsked(); err != nil {
		fmt.Println("error", err)
		return 1
	}
	if text := os.Getenv("SHUNT_TEST_SPARE"); text != "" {
		spare, err := strconv.Atoi(text)
		if err == nil {
			_, err = leaveDescriptors(spare)
		}
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
	}
	heartbeat, err := time.ParseDuration(os.Getenv("SHUNT_TEST_HEARTBEAT"))
	if err != nil {
		heartbeat = 0
	}
	if os.Getenv("SHUNT_TEST_ADMITTED") != "" {
		admitted = func() { fmt.Println("admitted") }
	}
	if os.Getenv("SHUNT_TEST_STARTED") != "" {
		fmt.Println("started")
	}
	s, err := Join(context.Background(), Config{URL: "env", Timeout: 20 * time.Second, Heartbeat: heartbeat,
		Logger: quiet})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("joined", s.Rank(), s.World())
	switch os.Getenv("SHUNT_TEST_RANK_PROCESS") {
	case "barrier":
		err = s.All().Barrier(context.Background(), "b")
	case "failure": // of another rank
		f := <-s.Failures()
		fmt.Println("failure", f.Rank, f.PID, f.Err)
		err = s.All().Barrier(context.Background(), "b")
		fmt.Println("barrier", err)
		return 0
	case "commands":
		return commands(s)
	case "wait": // for its stdin to end
		_, err = io.Copy(io.Discard, os.Stdin)
	case "leave": // without a goodbye
		return 3
	case "inherit": // a child keeps its socket
		file, err := s.link.Load().Conn.(*net.TCPConn).File()
		if err != nil {
			fmt.Println(err)
			return 1
		}
		child := exec.Command("sleep", "60")
		child.ExtraFiles = []*os.File{file}
		if err := child.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("child", child.Process.Pid)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	if s.Close() != nil || err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("done")
	return 0
}

// tell reports how something ended.
func tell(err error) int {
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("done")
	return 0
}

// commands does what stdin says, one line each, and reports in one line.
func commands(s *Session) int {
	groups := map[string]*Group{"all": s.All()}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		ctx := context.Background()
		var err error
		reply := "done"
		switch words[0] {
		case "failure":
			f := <-s.Failures()
			reply = fmt.Sprint(f.Rank, f.PID, f.Err.Code)
		case "group": // key, ranks
			var ranks []int
			for _, w := range words[2:] {
				rank := -1
				_, _ = fmt.Sscan(w, &rank)
				ranks = append(ranks, rank)
			}
			groups[words[1]], err = s.Group(words[1], ranks)
		case "begin": // group, tag: the reply comes with the next line of stdin
			result := make(chan error, 1)
			go func() { result <- groups[words[1]].Barrier(ctx, words[2]) }()
			for s.waiting() == 0 {
				runtime.Gosched()
			}
			fmt.Println("begun")
			in.Scan()
			err = <-result
		case "barrier":
			err = groups[words[1]].Barrier(ctx, words[2])
		case "survivors":
			var ranks []int
			ranks, err = groups[words[1]].Survivors(ctx, words[2])
			reply = fmt.Sprint(ranks)
		case "shut":
			err = groups[words[1]].Close()
		}
		if err != nil {
			reply = plugin.CodeOf(err).String() + " " + err.Error()
		}
		fmt.Println(reply)
	}
	if err := s.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// waiting returns the number of collectives in progress.
func (s *Session) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiters)
}

// process is a rank in a process of its own.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

func start(t testing.TB, what string, env ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	for _, v := range os.Environ() { // of no launcher that the tests may run under
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "SHUNT_") || strings.HasPrefix(name, "SLURM_") || strings.HasPrefix(name, "OMPI_") ||
			strings.HasPrefix(name, "PMI") ||
			name == "RANK" || name == "WORLD_SIZE" || strings.HasPrefix(name, "MASTER_") {
			continue
		}
		p.cmd.Env = append(p.cmd.Env, v)
	}
	// The race detector would make each process wait for a second at its end.
	p.cmd.Env = append(append(p.cmd.Env, "SHUNT_TEST_RANK_PROCESS="+what, "GORACE=atexit_sleep_ms=0"), env...)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // unless it has ended
		_ = p.cmd.Wait()
	})
	return p
}

// line returns the next line of the process's output.
func (p *process) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("output of process %d ended: %q, %v", p.cmd.Process.Pid, line, err)
	}
	return strings.TrimSpace(line)
}

func (p *process) expect(want string) {
	p.t.Helper()
	if got := p.line(); got != want {
		p.t.Fatalf("process %d says %q, want %q", p.cmd.Process.Pid, got, want)
	}
}

func rankEnv(rank, world int, id string) []string {
	return []string{fmt.Sprint("SHUNT_RANK=", rank), fmt.Sprint("SHUNT_WORLD=", world), "SHUNT_ID=" + id}
}

// Ranks of two time namespaces see each other's start times differently, and do not take each other for dead.
func TestRanksOfTwoTimeNamespaces(t *testing.T) {
	in := func(args ...string) *exec.Cmd {
		return exec.CommandContext(short(t, time.Minute), "unshare",
			append([]string{"-T", "--boottime", "1000", "-f"}, args...)...)
	}
	if out, err := in("true").CombinedOutput(); err != nil {
		t.Skipf("time namespaces or CAP_SYS_ADMIN are absent: %v, %s", err, out)
	}
	url := fmt.Sprintf("unix://@shunt-time-%d", os.Getpid())
	there := in(os.Args[0])
	there.Env = append(append(os.Environ(), "SHUNT_TEST_RANK_PROCESS=wait"), rankEnv(1, 2, url)...)
	stdin, err := there.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := there.Start(); err != nil {
		t.Fatal(err)
	}
	s, err := Join(t.Context(), Config{Rank: 0, World: 2, URL: url, Timeout: 30 * time.Second, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	st := s.root.store
	st.mu.Lock()
	if p := st.members[1].process; p.pid == 0 || p.ended() {
		t.Errorf("%+v counts as ended", p)
	}
	st.mu.Unlock()
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	if err := there.Wait(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
