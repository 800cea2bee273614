// Package launch starts the ranks of a job as processes of this machine, and
// ends them: it sets the variables by which they meet, carries their output,
// forwards signals, and sees to it that the first failure ends the job and no
// rank outlives it. It knows nothing of what the ranks run.
package launch

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
)

// Job says what to start.
type Job struct {
	World   int
	Path    string   // program, looked up in PATH
	Args    []string // its arguments, without the program's name
	Env     []string // added to the launcher's environment, for every rank
	Hosts   int      // pretend that the ranks run on so many hosts; 0 and 1: this one
	Restart int      // how often the job was started before, for the ranks to know
	Bind    bool     // each rank to a CPU of its own, if the launcher may use as many
	Label   string   // begins every message of the launcher, as "shunt run"

	// Part, if set, says that these are some of the ranks of a job on several machines.
	Part *Part
	// Machines, if set, names what each process stands for: not a rank, but the launcher of one of these machines.
	Machines []string
	// Here, if set, tells which of these is this machine: its launcher gets SIGTSTP and SIGCONT for its ranks.
	Here func(machine int) bool
	// Command, if set, is the program and the arguments of each process, instead of Path and Args.
	Command func(rank int) []string
	// Lifeline, if set, is the first text on the standard input of each process. It stays open as long as the launcher
	// lives, and carries a line for each signal that is forwarded (SignalLine), and EndLine.
	Lifeline func(rank, restart int) []byte
	// Intercept, if set, returns what takes the standard output of each process, which passes on to to what is output.
	// say writes a line on the process's Lifeline. Close is called when the process has ended. nil: nothing takes it.
	// A process that has written nothing does not read its Lifeline yet, as a remote shell that connects: a signal that
	// asks for the end is sent to it itself then.
	Intercept func(rank, restart int, to io.Writer, say func(line string)) io.WriteCloser
	// Reported, if set, tells of a process that has ended with status 0 whether it has done its work. Where it has not,
	// that is a failure: a remote shell may exit with status 0 and not have run its command.
	Reported func(rank int) bool

	Stdin          io.Reader // of rank 0; the others have none
	Stdout, Stderr io.Writer // nil: the launcher's own. Ranks get a terminal itself; else whole lines are passed on
	Prefix         bool      // put [rank] before every line of output

	// Files, if set, gives a rank its extra open files, from descriptor 3 on.
	// The launcher closes its copies once the rank runs.
	Files func(rank int) ([]*os.File, error)
	// Started, if set, is called once every rank runs.
	Started func()
	// Grace is the time that the other ranks have after the first failure to report it themselves, and that ranks have
	// from SIGTERM to SIGKILL, there 2 s at least. 0: 3 s.
	Grace time.Duration
}

// Part describes the share of one machine in a job on several, for its launcher.
type Part struct {
	First, World int    // number of the first rank here, and of all ranks of the job
	ID           string // where the ranks meet
	Address      string // where those of torch.distributed do
	Port         string
}

// Run starts the ranks and returns when all have ended. Signals that arrive on the channel are forwarded to every rank;
// SIGTSTP stops the ranks of this machine and this process. When ctx ends, or a second signal asks for the end, the
// ranks get SIGTERM, and SIGKILL after Grace; the launchers of machines are asked to end on their Lifeline before.
// The error is a *Failure when a rank failed, and System or InvalidArgument when the job could not be started; then no
// rank runs any more either.
func Run(ctx context.Context, j Job, signals <-chan os.Signal) error {
	if j.World < 1 || j.World > plugin.MaxWorld {
		return plugin.Errorf(plugin.InvalidArgument, "%s: %d ranks; want 1 to %d", j.Label, j.World, plugin.MaxWorld)
	}
	if j.Stdout == nil {
		j.Stdout = os.Stdout
	}
	if j.Stderr == nil {
		j.Stderr = os.Stderr
	}
	if j.Command == nil {
		j.Command = func(int) []string { return append([]string{j.Path}, j.Args...) }
	}
	paths := make([]string, j.World)
	for rank := range paths {
		var err error
		if paths[rank], err = exec.LookPath(j.Command(rank)[0]); err != nil {
			return plugin.Errorf(plugin.InvalidArgument, "%s: %w%s", j.Label, err, howToStart(j.Command(rank)[0]))
		}
	}
	port, err := freePort(loopback)
	if err != nil {
		return plugin.Errorf(plugin.System, "%s: a port for torch.distributed: %w", j.Label,
			descriptors.Advise(err, 1))
	}
	telling, stop := context.WithCancel(context.Background())
	r := &running{job: j, id: bootstrap.NewLocalURL(), port: port, telling: telling, ended: make(chan Exit, j.World),
		began: time.Now(), collected: make([]bool, j.World), begun: make([]atomic.Bool, j.World),
		requests: map[os.Signal]time.Time{}, killed: make(chan struct{})}
	if j.Part != nil {
		r.id, r.port = j.Part.ID, j.Part.Port
	}
	r.guard = newGuard(r.id)
	defer r.guard.close()
	defer r.tellers.Wait()
	defer stop()
	if err := r.start(paths); err != nil {
		r.kill()
		for range r.ranks {
			<-r.ended
		}
		r.passOn(ctx, signals, nil)
		return err
	}
	if j.Started != nil {
		j.Started()
	}
	failure := r.wait(ctx, signals)
	asked := r.passOn(ctx, signals, failure)
	switch {
	case failure != nil: // which says more
		failure.Asked = cmp.Or(failure.Asked, asked)
		return failure
	case asked != 0:
		return plugin.Errorf(plugin.System, "%s: %v before all output of the ranks was taken", j.Label, asked)
	}
	return nil
}

// running is a job in progress.
type running struct {
	job    Job
	id     string // where ranks meet
	port   string // where those of torch.distributed do
	ranks  []*exec.Cmd
	ended  chan Exit
	output sync.WaitGroup
	began  time.Time
	guard  *guard

	collecting sync.Mutex
	collected  []bool // by rank

	lifelines []*lifeline   // of launchers of machines
	heard     atomic.Int64  // how often those have written something
	begun     []atomic.Bool // which have, or need not, by number

	telling context.Context // tells ranks that still join that one has ended
	tellers sync.WaitGroup
	told    bool // of a first rank

	requests map[os.Signal]time.Time // when a signal last asked for the end

	killing sync.Once
	killed  chan struct{} // closed when the ranks have been killed
}

// kill kills the ranks that still run. From then on what was not taken of their output no longer keeps the job.
func (r *running) kill() {
	r.signal(syscall.SIGKILL)
	r.killing.Do(func() { close(r.killed) })
}

// ofRank is about how many descriptors the start of one rank takes: pipes of its streams and of its start.
const ofRank = 8

// start starts all ranks. On error some may run.
func (r *running) start(paths []string) error {
	out, errs := newOutlets(r.job.Stdout, r.job.Stderr)
	for rank, path := range paths {
		if err := r.startRank(rank, path, out, errs); err != nil {
			return err
		}
	}
	return nil
}

// startRank starts one rank, whose output goes to out and errs.
func (r *running) startRank(rank int, path string, out, errs *outlet) (failed error) {
	cmd := exec.Command(path)
	cmd.Args = r.job.Command(rank)
	cmd.Env = r.environment(rank)
	if rank == 0 {
		cmd.Stdin = r.job.Stdin
	}
	s := &streams{}
	defer s.started()
	var line *lifeline
	if r.job.Lifeline != nil {
		read, write, err := os.Pipe()
		if err != nil {
			return plugin.Errorf(plugin.System, "%s: %w", r.job.Label, descriptors.Advise(err, ofRank))
		}
		line, cmd.Stdin, s.ends = newLifeline(write), read, append(s.ends, read)
		defer func() {
			if failed != nil {
				line.end()
			}
		}()
	}
	err := r.connect(cmd, s, rank, out, errs, line)
	// Where job.Stdin is no file, what copies it must not keep the job.
	cmd.WaitDelay = time.Second
	// Its own group, so that a rank's children end with it. If the launcher
	// dies the kernel ends the rank; that promise is bound to the thread that
	// started it, which spawn never gives up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err == nil && r.job.Files != nil {
		if cmd.ExtraFiles, err = r.job.Files(rank); err != nil {
			return err
		}
		s.ends = append(s.ends, cmd.ExtraFiles...)
	}
	if err == nil {
		err = spawn(cmd, r.job.cpuOf(rank), func(pid int) { r.guard.began(pid, r.number(rank)) })
	}
	if err != nil {
		return plugin.Errorf(plugin.System, "%s: starting rank %d: %w", r.job.Label, r.number(rank),
			descriptors.Advise(err, ofRank))
	}
	if line != nil {
		go line.write(r.job.Lifeline(rank, r.job.Restart))
		r.lifelines = append(r.lifelines, line)
	}
	r.ranks = append(r.ranks, cmd)
	r.output.Add(1)
	go r.reap(rank, cmd, line, s)
	return nil
}

// connect gives a rank its standard output and error: a terminal itself if nothing is added to it, else pipes to
// writers of whole lines.
func (r *running) connect(cmd *exec.Cmd, s *streams, rank int, out, errs *outlet, line *lifeline) error {
	prefix := ""
	if r.job.Prefix {
		prefix = "[" + strconv.Itoa(r.number(rank)) + "] "
	}
	stdout := s.writer(out, prefix)
	if len(s.lines) > 0 {
		cmd.Env = unbuffered(cmd.Env)
	}
	stderr := s.writer(errs, prefix)
	if r.job.Intercept != nil {
		if between := r.job.Intercept(rank, r.job.Restart, stdout, line.say); between != nil {
			s.between, stdout = between, &counted{between, &r.heard, &r.begun[rank]}
		}
	}
	if s.between == nil {
		r.begun[rank].Store(true)
	}
	var err error
	if cmd.Stdout, err = s.pipe(stdout); err == nil {
		cmd.Stderr, err = s.pipe(stderr)
	}
	return err
}

// reap waits for one rank and reports its end.
func (r *running) reap(rank int, cmd *exec.Cmd, line *lifeline, s *streams) {
	defer r.output.Done()
	// Until the rank is collected no other group can have its number.
	for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == syscall.EINTR {
	}
	after := time.Since(r.began)
	s.expire(time.Second)
	// What the rank started must not outlive it.
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	r.endMembers(rank)
	r.guard.ended(cmd.Process.Pid, r.number(rank))
	r.collect(rank, cmd)
	exit := Exit{Rank: r.number(rank), Host: r.machine(rank), launcher: r.job.Machines != nil, PID: cmd.Process.Pid,
		Status: cmd.ProcessState.ExitCode(), After: after}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		exit.Status, exit.Signal = -1, status.Signal()
	}
	if line != nil {
		line.end()
	}
	passedOn := make(chan struct{})
	go func() {
		s.finish()
		close(passedOn)
	}()
	if exit.Status == 0 && r.job.Reported != nil { // else at once: the output may be taken late
		select {
		case <-passedOn:
		case <-r.killed:
		}
		exit.unreported = !r.job.Reported(rank)
	}
	r.ended <- exit
	<-passedOn
}

// wait collects the ends of all ranks. It returns nil where none has failed.
func (r *running) wait(ctx context.Context, signals <-chan os.Signal) *Failure {
	grace := r.job.Grace
	if grace == 0 {
		grace = 3 * time.Second
	}
	end := newEnding(r, max(grace, 2*time.Second))
	var first *Exit
	exits := make([]Exit, r.job.World)
	var asked syscall.Signal // the first that asks for the end
	insisted, told, forwarded := false, false, map[syscall.Signal]bool{}
	done := ctx.Done()
	for left := r.job.World; left > 0; {
		select {
		case e := <-r.ended:
			e.Ended = end.begun && e.Failed()
			e.forwarded = forwarded[e.Signal]
			at := e.Rank - r.number(0)
			exits[at] = e
			r.tell(e)
			left--
			if e.Failed() && first == nil {
				first, told = &exits[at], end.begun
				if !end.begun {
					end.due = time.After(grace)
				}
			}
		case <-end.due:
			if !end.hears() {
				end.step()
			}
		case <-done:
			done = nil
			end.step()
		case s := <-signals:
			number, ok := s.(syscall.Signal)
			if !ok || r.repeated(s) {
				break
			}
			switch {
			case number == syscall.SIGTSTP:
				r.pause()
			case r.job.Machines != nil:
				r.signalMachines(number)
			default:
				forwarded[number] = true
				r.signal(number)
			}
			switch number {
			case syscall.SIGINT, syscall.SIGTERM:
				if insisted {
					end.step()
				}
				insisted = true
				fallthrough
			case syscall.SIGHUP, syscall.SIGQUIT: // a terminal that is closed sends more than one
				asked = cmp.Or(asked, number)
			}
		}
	}
	if first == nil {
		return nil
	}
	return &Failure{Label: r.job.Label, World: r.world(), First: FirstOf(*first, exits), Exits: exits, Began: r.began,
		Asked: asked, Told: told}
}

// untaken is how long output may be not taken before the failure that the job ended with is told. Tests change it.
var untaken = time.Second

// passOn returns when all output is passed on. Where nothing takes it, the end of ctx or a signal ends the waiting: no
// rank is left that they could end. It returns the signal, or 0. It tells of failure, as the caller cannot before.
func (r *running) passOn(ctx context.Context, signals <-chan os.Signal, failure *Failure) syscall.Signal {
	all := make(chan struct{})
	go func() {
		r.output.Wait()
		close(all)
	}()
	if failure != nil {
		told := time.AfterFunc(untaken, func() { // which waits where the same reader takes this text
			_, _ = fmt.Fprintf(r.job.Stderr, "%v\n%s: waiting until the output of the ranks is read\n", failure, r.job.Label)
		})
		defer told.Stop()
	}
	done, late := ctx.Done(), (<-chan time.Time)(nil)
	for {
		select {
		case <-all:
			return 0
		case <-done:
			done, late = nil, time.After(2*time.Second)
		case <-late:
			return 0 // the caller knows that the job has not ended in time
		case s := <-signals:
			if r.repeated(s) {
				break
			}
			switch s {
			case syscall.SIGTSTP:
				r.pause()
			case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
				return s.(syscall.Signal)
			}
		}
	}
}

// tell lets ranks that still join know that one will not come: the first that
// ended, and rank 0, which they would look for.
func (r *running) tell(e Exit) {
	if r.job.World == 1 || r.job.Part != nil || r.job.Machines != nil || (r.told && e.Rank != 0) {
		return
	}
	r.told = true
	reason := &plugin.Error{Code: plugin.PeerDied, Rank: e.Rank, Message: e.String() + ", before all ranks had joined"}
	r.tellers.Go(func() {
		_ = bootstrap.Absent(r.telling, r.id, e.Rank, r.job.World, reason) // fails for a malformed place only
	})
}

// number is the number in the job of a rank here.
func (r *running) number(rank int) int {
	if r.job.Part == nil {
		return rank
	}
	return r.job.Part.First + rank
}

// world is the number of the job's ranks.
func (r *running) world() int {
	if r.job.Part == nil {
		return r.job.World
	}
	return r.job.Part.World
}

func (r *running) machine(rank int) string {
	if r.job.Machines == nil {
		return ""
	}
	return r.job.Machines[rank]
}

// collect gives up the number of a rank that has ended: another group may get it.
func (r *running) collect(rank int, cmd *exec.Cmd) {
	r.collecting.Lock()
	r.collected[rank] = true
	r.collecting.Unlock()
	_ = cmd.Wait() // the state says more than the error
}

// spawned hands processes to the one thread that starts them all and lives as
// long as the launcher.
var spawned = sync.OnceValue(func() chan func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// spawn starts a rank on that thread, on a processor of its own if it has one, and tells of it.
func spawn(cmd *exec.Cmd, cpu int, began func(pid int)) error {
	result := make(chan error, 1)
	spawned() <- func() {
		err := onCPU(cpu, cmd.Start)
		if err == nil {
			began(cmd.Process.Pid) // on this thread: it runs as soon as the process does
		}
		result <- err
	}
	return <-result
}
