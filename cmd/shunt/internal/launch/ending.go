package launch

import (
	"syscall"
	"time"
)

// ending ends the ranks of a job, step by step.
type ending struct {
	job       *running
	steps     []syscall.Signal // those to come, and the last; 0: machines end their ranks and report, if they can
	wait      time.Duration    // from one to the next
	due       <-chan time.Time // the next step
	begun     bool
	reporting bool
	heard     int64 // of the machines so far
}

func newEnding(r *running, wait time.Duration) *ending {
	e := &ending{job: r, wait: wait, steps: []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}}
	if r.job.Machines != nil {
		e.steps = append([]syscall.Signal{0}, e.steps...)
	}
	return e
}

// step takes the next step, or the last one again.
func (e *ending) step() {
	e.begun, e.reporting, e.due = true, e.steps[0] == 0, nil
	wait := e.wait
	switch e.steps[0] {
	case 0:
		e.job.sayAll(EndLine)
		wait += endReport
	case syscall.SIGKILL:
		e.job.kill()
	default:
		e.job.signal(e.steps[0])
	}
	e.heard = e.job.heard.Load()
	if len(e.steps) > 1 {
		e.steps, e.due = e.steps[1:], time.After(wait)
	}
}

// hears puts the next step off while a machine still reports.
func (e *ending) hears() bool {
	now := e.job.heard.Load()
	if !e.reporting || now == e.heard {
		return false
	}
	e.heard, e.due = now, time.After(endReport)
	return true
}
