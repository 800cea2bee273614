package launch

import (
	"os"
	"syscall"
	"time"
)

// oneRequest is the time in which the same signal again is the same request: timeout signals its child and then its own
// group, and a wrapper passes on the Ctrl-C that the launcher gets from the terminal too. Tests change it.
var oneRequest = 500 * time.Millisecond

// repeated says whether a signal repeats the request to end the job that it has just made.
func (r *running) repeated(s os.Signal) bool {
	switch s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
	default:
		return false
	}
	if made, before := r.requests[s]; before && time.Since(made) < oneRequest {
		return true
	}
	r.requests[s] = time.Now()
	return false
}

// pause stops the ranks of this machine, which are not in the terminal's group, and then this process. SIGCONT is
// forwarded as other signals are.
func (r *running) pause() {
	if r.job.Machines == nil {
		r.signal(syscall.SIGSTOP)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
}

// sayAll writes a line to the launchers of machines.
func (r *running) sayAll(line string) {
	for _, l := range r.lifelines {
		l.say(line)
	}
}

// signal sends a signal to every rank's group, and to what the ranks have put into others.
func (r *running) signal(s syscall.Signal) {
	r.collecting.Lock()
	defer r.collecting.Unlock()
	for rank, cmd := range r.ranks {
		if !r.collected[rank] {
			_ = syscall.Kill(-cmd.Process.Pid, s)
		}
	}
	r.eachMember(func(rank int, p *os.Process) {
		group, err := syscall.Getpgid(p.Pid)
		if err == nil && rank < len(r.ranks) && !r.collected[rank] && group != r.ranks[rank].Process.Pid {
			_ = p.Signal(s)
		}
	})
}
