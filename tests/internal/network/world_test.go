package network

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/transports/shm"
	"github.com/shunt-ccl/shunt/transports/ucx"
	"github.com/shunt-ccl/shunt/transports/ucx/ucxtest"
)

var verbose = flag.Bool("network.events", false, "print what ranks say")

func TestMain(m *testing.M) {
	First()
	host.Register(shm.Transport{})
	host.Register(ucx.Transport{})
	Rank()
	_ = flag.Set("test.parallel", "8") // they wait most of the time; the command line may say otherwise
	flag.Parse()
	os.Exit(m.Run())
}

// process is a rank as its test sees it.
type process struct {
	rank  int
	host  *Host
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{}

	mu     sync.Mutex
	log    []string // what it wrote beside events
	events []Event
	news   chan struct{}
}

// world is ranks on hosts.
type world struct {
	t     testing.TB
	began time.Time
	hosts []*Host
	ranks []*process
}

// lan makes hosts on one network: host i has the address 10.0.0.(i+1).
func lan(t testing.TB, count int) []*Host {
	t.Helper()
	hosts, s := bare(t, count), &Segment{}
	for i, h := range hosts {
		h.Join(t, s, "eth0", fmt.Sprintf("10.0.0.%d/24", i+1))
	}
	return hosts
}

// bare makes hosts on no network.
func bare(t testing.TB, count int) (hosts []*Host) {
	t.Helper()
	if reason := Missing(); reason != "" {
		t.Skip("no hosts: " + reason)
	}
	if reason := ucxtest.Missing(); reason != "" {
		t.Skip("nothing between hosts: " + reason)
	}
	for i := range count {
		hosts = append(hosts, NewHost(t, fmt.Sprintf("node%d", i)))
	}
	return hosts
}

// start starts ranks, of which where gives the hosts.
func start(t testing.TB, hosts []*Host, where []int, p Program, env ...string) *world {
	t.Helper()
	w := &world{t: t, hosts: hosts, began: time.Now()}
	text, _ := json.Marshal(p)
	for rank, at := range where {
		h := hosts[at]
		cmd := h.Command("/proc/self/exe")
		self, _ := os.Executable()
		cmd.Args[len(cmd.Args)-1] = self
		cmd.Env = append(os.Environ(), programVariable+"="+string(text), fmt.Sprint("SHUNT_RANK=", rank),
			fmt.Sprint("SHUNT_WORLD=", len(where)), "SHUNT_SECRET=0123456789abcdef0123456789abcdef",
			"SHUNT_TRANSPORTS=shm,ucx", fmt.Sprintf("SHUNT_ID=tcp://10.0.0.%d:29500", where[0]+1))
		cmd.Env = append(cmd.Env, env...)
		pr := &process{rank: rank, host: h, cmd: cmd, ended: make(chan struct{}), news: make(chan struct{}, 1)}
		var err error
		if pr.stdin, err = cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.ranks = append(w.ranks, pr)
		var both sync.WaitGroup
		both.Go(func() { pr.listen(w, stdout) })
		both.Go(func() {
			lines := bufio.NewScanner(stderr)
			for lines.Scan() {
				w.print("%d! %s", rank, lines.Text())
				pr.note(lines.Text())
			}
		})
		go func() {
			both.Wait()
			_ = cmd.Wait()
			close(pr.ended)
		}()
	}
	t.Cleanup(w.end)
	return w
}

func (w *world) print(format string, args ...any) {
	if *verbose {
		fmt.Printf("%7.3f "+format+"\n", append([]any{time.Since(w.began).Seconds()}, args...)...)
	}
}

func (p *process) listen(w *world, from io.Reader) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var e Event
		text := lines.Text()
		if json.Unmarshal([]byte(text[max(0, strings.Index(text, `{"Rank"`)):]), &e) != nil { // UCX writes there too
			p.note(text)
			w.print("%d? %s", p.rank, text)
			continue
		}
		w.print("%d: %s %s world %d calls %d took %.3f %s/%d %s", p.rank, e.What, e.Phase, e.World, e.Calls,
			e.Took.Seconds(), e.Code, e.Of, e.Text)
		p.mu.Lock()
		p.events = append(p.events, e)
		p.mu.Unlock()
		select {
		case p.news <- struct{}{}:
		default:
		}
	}
}

// end ends what is left, and says what there was if the test has failed.
func (w *world) end() {
	for _, p := range w.ranks {
		if !w.t.Failed() {
			break
		}
		p.mu.Lock()
		for _, e := range p.events {
			w.t.Logf("rank %d after %.3f s: %s %s %s %s (world %d, rank %d)", p.rank, e.At.Sub(w.began).Seconds(), e.What,
				e.Phase, e.Code, e.Text, e.World, e.Of)
		}
		p.mu.Unlock()
		w.t.Logf("rank %d wrote:\n%s", p.rank, p.wrote())
	}
	for _, p := range w.ranks {
		select {
		case <-p.ended:
		default:
			p.signal(syscall.SIGKILL)
			<-p.ended
		}
	}
}

// signal sends a signal to a rank.
func (p *process) signal(number syscall.Signal) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.cmd.Process.Pid, p.cmd.Process.Pid))
	if err != nil {
		return
	}
	var pid int
	if _, err := fmt.Sscan(string(children), &pid); err == nil {
		_ = syscall.Kill(pid, number)
	}
	if number == syscall.SIGCONT {
		_ = p.cmd.Process.Signal(number) // nsenter stops with what it runs
	}
}

// find returns the first event of a kind.
func (p *process) find(what string) *Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.events, func(e Event) bool { return e.What == what }); i >= 0 {
		e := p.events[i]
		return &e
	}
	return nil
}

// note keeps a line for wrote.
func (p *process) note(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, line)
}

// wrote returns what a rank has written beside events.
func (p *process) wrote() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.log, "\n")
}

// last returns the last event of a kind.
func (p *process) last(what string) (last *Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if e.What == what {
			last = &e
		}
	}
	return last
}

// over waits until a rank has ended, and tells whether it has.
func (p *process) over(within time.Duration) bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(within):
		return false
	}
}

// await waits until a rank has said one of the things.
func (p *process) await(within time.Duration, what ...string) *Event {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		for _, w := range what {
			if e := p.find(w); e != nil {
				return e
			}
		}
		select {
		case <-p.news:
		case <-p.ended:
			for _, w := range what {
				if e := p.find(w); e != nil {
					return e
				}
			}
			return nil
		case <-timer.C:
			return nil
		}
	}
}

// all waits until all ranks have said something.
func (w *world) all(within time.Duration, what ...string) {
	w.t.Helper()
	for _, p := range w.ranks {
		if p.await(within, what...) == nil {
			w.t.Fatalf("rank %d does not say %q within %s\n%s", p.rank, what, within, p.wrote())
		}
	}
}

// stop tells ranks to stop.
func (w *world) stop() {
	for _, p := range w.ranks {
		_, _ = io.WriteString(p.stdin, "stop\n")
	}
}
