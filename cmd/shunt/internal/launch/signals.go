package launch

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// oneRequest is the time in which the same signal again is the same request: timeout signals its child and then its own
// group, and a wrapper passes on the Ctrl-C that the launcher gets from the terminal too. Tests change it.
var oneRequest = 500 * time.Millisecond

// asks are the signals that ask for the end of the job.
var asks = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// repeated says whether a signal repeats the request to end the job that it has just made.
func (r *running) repeated(s os.Signal) bool {
	if !slices.Contains(asks, s) {
		return false
	}
	if made, before := r.requests[s]; before && time.Since(made) < oneRequest {
		return true
	}
	r.requests[s] = time.Now()
	return false
}

// pause stops the ranks of this machine, which are not in the terminal's group, and then this process. SIGCONT is
// forwarded as other signals are. Where the terminal has no shell that could continue this process, nothing is stopped.
func (r *running) pause() {
	if onTerminal() && !hasShell() {
		return
	}
	switch {
	case r.job.Machines == nil:
		r.signal(syscall.SIGSTOP)
	case r.job.Here != nil:
		r.signalSome(syscall.SIGTSTP, r.job.Here)
	}
	if r.job.Part == nil { // else the launcher of the job stops, and continues the ranks by a signal to this one
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
}

// onTerminal reports whether this process can be signalled from a terminal.
func onTerminal() bool {
	tty, err := os.Open("/dev/tty")
	if err == nil {
		_ = tty.Close() // was not used
	}
	return err == nil
}

// hasShell reports whether an ancestor of this process is in its session and in another process group. The group is
// orphaned otherwise, as of what ssh -t, tmux or a container starts itself, and the kernel discards SIGTSTP there, but
// not SIGSTOP.
func hasShell() bool {
	session, err := unix.Getsid(0)
	for pid := os.Getpid(); err == nil; {
		var text []byte
		if text, err = os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil {
			break
		}
		parent := 0
		_, err = fmt.Sscanf(string(text[bytes.LastIndexByte(text, ')')+1:]), " %c %d", new(rune), &parent)
		if of, gone := unix.Getsid(parent); parent == 0 || gone != nil || of != session {
			return false
		}
		if group, gone := unix.Getpgid(parent); gone == nil && group != unix.Getpgrp() {
			return true
		}
		pid = parent
	}
	return true // it is not known
}

// sayAll writes a line to the launchers of machines.
func (r *running) sayAll(line string) {
	for _, l := range r.lifelines {
		l.say(line)
	}
}

// signalMachines forwards a signal to the ranks by way of the launchers of machines: by a line, or by itself where
// SIGTSTP came so, or where a remote shell that connects does not read it yet.
func (r *running) signalMachines(s syscall.Signal) {
	direct := func(machine int) bool { return s == syscall.SIGCONT && r.job.Here != nil && r.job.Here(machine) }
	r.signalSome(s, func(machine int) bool {
		return direct(machine) || slices.Contains(asks, os.Signal(s)) && !r.begun[machine].Load()
	})
	for machine, l := range r.lifelines {
		if !direct(machine) {
			l.say(SignalLine(s))
		}
	}
}

// signalSome sends a signal to the groups of some ranks.
func (r *running) signalSome(s syscall.Signal, which func(rank int) bool) {
	r.collecting.Lock()
	defer r.collecting.Unlock()
	for rank, cmd := range r.ranks {
		if !r.collected[rank] && which(rank) {
			_ = syscall.Kill(-cmd.Process.Pid, s)
		}
	}
}

// signal sends a signal to every rank's group, and to what the ranks have put into others.
func (r *running) signal(s syscall.Signal) {
	r.signalSome(s, func(int) bool { return true })
	r.collecting.Lock()
	defer r.collecting.Unlock()
	r.eachMember(func(rank int, p *os.Process) {
		group, err := syscall.Getpgid(p.Pid)
		if err == nil && rank < len(r.ranks) && !r.collected[rank] && group != r.ranks[rank].Process.Pid {
			_ = p.Signal(s)
		}
	})
}
