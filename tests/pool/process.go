package pool

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// spawner starts processes from one thread that lives as long as the pool.
// The kernel sends a child's parent-death signal when the *thread* that forked
// it ends, so processes started from any goroutine would die at random.
type spawner struct {
	requests chan func()
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for f := range s.requests {
			f()
		}
	}()
	return s
}

func (s *spawner) close() { close(s.requests) }

// process is one worker, seen from the pool.
type process struct {
	rank     int
	command  *exec.Cmd
	requests *os.File // write end
	replies  *os.File // read end
	output   *tail
	lost     atomic.Bool // ended without a reply

	done  chan struct{} // closed when the process has ended and its output is read
	state *os.ProcessState
	once  sync.Once
}

func (s *spawner) spawn(o *Options, rank int) (*process, error) {
	binary := o.Binary
	if binary == "" {
		// Not os.Executable: a test binary may have been unlinked already.
		binary = "/proc/self/exe"
	}
	requestRead, requestWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	replyRead, replyWrite, err := os.Pipe()
	if err != nil {
		_ = requestRead.Close()
		_ = requestWrite.Close()
		return nil, err
	}
	p := &process{
		rank: rank, requests: requestWrite, replies: replyRead,
		output: &tail{limit: o.Stderr}, done: make(chan struct{}),
	}
	p.command = exec.Command(binary)
	p.command.Args = []string{fmt.Sprintf("%s[pool rank %d/%d]", os.Args[0], rank, o.World)}
	p.command.Env = append(append(os.Environ(), "GOTRACEBACK=all"), o.Env...)
	p.command.Env = append(p.command.Env, fmt.Sprintf("%s=%d/%d", marker, rank, o.World))
	p.command.Stdout, p.command.Stderr = p.output, p.output
	p.command.ExtraFiles = []*os.File{requestRead, replyWrite} // become 3 and 4
	// A grandchild that holds the output pipe must not hold the pool up.
	p.command.WaitDelay = time.Second
	// A process group of its own: an interrupt from a terminal ends the pool's
	// process first, which ends the workers in order.
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error, 1)
	s.requests <- func() { started <- p.command.Start() }
	err = <-started
	_ = requestRead.Close()
	_ = replyWrite.Close()
	if err != nil {
		_ = requestWrite.Close()
		_ = replyRead.Close()
		return nil, err
	}
	go func() {
		_ = p.command.Wait() // the state says it all
		p.state = p.command.ProcessState
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.command.Process.Pid }

// exchange writes one request and reads its reply. Killing the process ends
// both.
func (p *process) exchange(request *frame, responses chan<- response) {
	if err := writeFrame(p.requests, request); err != nil {
		responses <- response{p.rank, nil, fmt.Errorf("writing the request: %w", err)}
		return
	}
	f, err := readFrame(p.replies)
	if err == io.EOF {
		err = fmt.Errorf("ended without a reply: %w", err)
	}
	responses <- response{p.rank, f, err}
}

// dump makes a stuck Go process print its stacks and end. One that is stopped
// or not able to is killed soon after by the caller.
func (p *process) dump() {
	_ = p.command.Process.Signal(syscall.SIGQUIT)
	p.ended(2 * time.Second)
}

// hangUp closes the request pipe, at which a worker ends.
func (p *process) hangUp() { _ = p.requests.Close() }

// kill ends the process. It does not end its children: a worker that leaves
// some behind has a fault that tests look for.
func (p *process) kill() { _ = p.command.Process.Kill() }

func (p *process) ended(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		select {
		case <-p.done:
			return true
		default:
			return false
		}
	}
}

// reap waits for the end and releases the pipes.
func (p *process) reap() {
	<-p.done
	p.once.Do(func() {
		_ = p.requests.Close()
		_ = p.replies.Close()
	})
}

// status describes the end of the process, once reaped.
func (p *process) status() string {
	<-p.done
	if p.state == nil {
		return "could not be waited for"
	}
	ws, ok := p.state.Sys().(syscall.WaitStatus)
	switch {
	case ok && ws.Signaled():
		return "was killed by signal " + ws.Signal().String()
	case ok:
		return fmt.Sprintf("exited with status %d", ws.ExitStatus())
	}
	return p.state.String()
}
