package launch

import (
	"fmt"
	"strings"
	"syscall"
	"time"
)

// Exit describes the end of one rank.
type Exit struct {
	Rank   int            `json:"rank"`
	Host   string         `json:"host,omitempty"` // of a hostfile, where it ran
	PID    int            `json:"pid"`
	Status int            `json:"status"` // exit status, or -1
	Signal syscall.Signal `json:"signal"` // that ended it, or 0
	After  time.Duration  `json:"after_ns"`
	Ended  bool           `json:"ended_by_launcher"` // by the launcher, as another one failed or the job was to end

	launcher   bool // of that host, not of a rank
	forwarded  bool // the launcher had passed the signal on
	unreported bool // status 0, and Job.Reported found no report
}

// Failed reports whether the rank did not exit with status 0, or the launcher of a machine did without a report.
func (e Exit) Failed() bool { return e.Status != 0 || e.unreported }

// String says how the rank ended.
func (e Exit) String() string {
	how := fmt.Sprintf("exited with status %d", e.Status)
	if e.Signal != 0 {
		how = fmt.Sprintf("was ended by signal %d (%s)", int(e.Signal), e.Signal)
	}
	text := fmt.Sprintf("%s %s after %s", e.name(), how, e.After.Round(time.Millisecond))
	if e.unreported {
		text += ", without a report that its ranks ran"
	}
	return text
}

func (e Exit) name() string {
	if e.launcher {
		return "the launcher on " + e.Host
	}
	return fmt.Sprintf("rank %d (pid %d)", e.Rank, e.PID)
}

// crashed reports whether a signal ended the rank that is neither the launcher's nor a program's own reaction to an
// error, as of a peer.
func (e Exit) crashed() bool {
	return e.Signal != 0 && !e.forwarded && e.Signal != syscall.SIGABRT && e.Signal != syscall.SIGPIPE
}

// alike is the time within which failures are taken as of one time. A rank that is killed may be gone for its peers,
// which then exit, before the kernel has taken its memory apart.
const alike = 200 * time.Millisecond

// FirstOf returns the failure that the others came of, where seen was seen first: of those at the same time one by a
// signal, else the earliest. None that the launcher caused counts, unless it is seen.
func FirstOf(seen Exit, all []Exit) Exit {
	first := seen
	for _, e := range all {
		if !e.Failed() || e.Ended || seen.Ended || e.After > seen.After+alike {
			continue
		}
		if crashed := e.crashed(); crashed == first.crashed() && e.After < first.After || crashed && !first.crashed() {
			first = e
		}
	}
	return first
}

// Failure is the error of a job of which a rank failed.
type Failure struct {
	Label string
	World int
	First Exit      // the failure that ended the job
	Began time.Time // of the job
	Exits []Exit    // of all ranks, by rank

	Asked    syscall.Signal // that asked for the end; 0: none
	Told     bool           // ctx, or a second signal, had asked for the end before a rank failed
	TimedOut bool           // of the caller's; the launcher knows only that it was to end the job
}

// mostEarly is the most ranks that Error names of those that had ended before.
const mostEarly = 8

// Error names the first failed rank, how the others ended, and who had ended well before: the failed may have waited
// for one of these.
func (f *Failure) Error() string {
	var b strings.Builder
	job := "the job"
	if !f.First.launcher {
		job = fmt.Sprintf("the job of %d", f.World)
	}
	if f.Told {
		fmt.Fprintf(&b, "%s: %s, as %s was to end", f.Label, f.First, job)
	} else {
		fmt.Fprintf(&b, "%s: %s; %s ended with it", f.Label, f.First, job)
	}
	for _, e := range f.Exits {
		switch {
		case e.Rank == f.First.Rank || !e.Failed():
		case e.Ended && e.Signal == syscall.SIGKILL:
			fmt.Fprintf(&b, "\n%s: %s had to be killed: SIGTERM did not end it", f.Label, e.name())
		case e.Ended:
			fmt.Fprintf(&b, "\n%s: %s had to be ended", f.Label, e.name())
		default:
			fmt.Fprintf(&b, "\n%s: %s", f.Label, e)
		}
	}
	var early []string
	for _, e := range f.Exits {
		if !e.Failed() && !e.launcher && e.PID != 0 && e.After < f.First.After {
			early = append(early, fmt.Sprint(e.Rank))
		}
	}
	switch n := len(early); n {
	case 0:
	case 1:
		fmt.Fprintf(&b, "\n%s: rank %s had exited with status 0 before", f.Label, early[0])
	default:
		if n > mostEarly {
			early = append(early[:mostEarly], fmt.Sprintf("%d more", n-mostEarly))
		}
		fmt.Fprintf(&b, "\n%s: ranks %s had exited with status 0 before", f.Label, strings.Join(early, ", "))
	}
	return b.String()
}

// Status returns the exit status for the job, as a shell would have it: that of the
// first failed rank, or 128 and its signal. A remote shell that a signal ends says
// nothing of the ranks, so there the signal counts. It is 0 where the first
// failure is a launcher that exited with status 0 without a report.
func (f *Failure) Status() int {
	if f.First.launcher && f.Asked != 0 {
		return 128 + int(f.Asked)
	}
	if f.First.Signal != 0 {
		return 128 + int(f.First.Signal)
	}
	return f.First.Status
}
