package bootstrap

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// rankProcess is the life of a rank in a process of its own: it joins as the
// environment says, reports on stdout, then does what SHUNT_TEST_RANK_PROCESS
// says.
func rankProcess() int {
	heartbeat, err := time.ParseDuration(os.Getenv("SHUNT_TEST_HEARTBEAT"))
	if err != nil {
		heartbeat = 0
	}
	s, err := Join(context.Background(), Config{URL: "env", Timeout: 20 * time.Second, Heartbeat: heartbeat, Logger: quiet})
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
	case "wait": // for its stdin to end
		_, err = io.Copy(io.Discard, os.Stdin)
	case "leave": // without a goodbye
		return 3
	case "inherit": // a child keeps its socket
		file, err := s.conn.Conn.(*net.TCPConn).File()
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
		if strings.HasPrefix(name, "SHUNT_") || strings.HasPrefix(name, "SLURM_") || strings.HasPrefix(name, "OMPI_") || strings.HasPrefix(name, "PMI") ||
			name == "RANK" || name == "WORLD_SIZE" || strings.HasPrefix(name, "MASTER_") {
			continue
		}
		p.cmd.Env = append(p.cmd.Env, v)
	}
	p.cmd.Env = append(append(p.cmd.Env, "SHUNT_TEST_RANK_PROCESS="+what), env...)
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

// line is the next line of the process's output.
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
