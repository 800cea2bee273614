package host

import (
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/host/watch"
	"github.com/shunt-ccl/shunt/plugin"
)

// A communicator that fails leaves behind what this rank ran last, as a file in
// SHUNT_RECORDS_DIR. A goroutine of its own writes it, once everybody has been told
// of the failure: a disk delays no other rank. Here it delays the error of calls by
// filingDelay at most, and Close by closingDelay, so that a program which ends as
// soon as it has either has its file, unless the disk is slower than that.

var (
	filingDelay  = 250 * time.Millisecond
	closingDelay = 2 * time.Second
)

// writeReport is watch.Report.WriteFile, but in tests.
var writeReport = watch.Report.WriteFile

// filing is the writing of that file.
type filing struct {
	dir  string        // "": nothing is written
	done chan struct{} // closed when the file is written, or cannot be
	late atomic.Bool   // a call has waited for it as long as any may

	mu   sync.Mutex
	gone bool // the communicator is closed, and with it what was recorded
}

// setUp is called before the communicator can fail.
func (f *filing) setUp(dir string) {
	if dir == "" {
		return
	}
	if absolute, err := filepath.Abs(dir); err == nil { // the program may change its directory
		dir = absolute
	}
	f.dir, f.done = dir, make(chan struct{})
}

// file begins to write the file of a communicator that has failed. It is called once.
func (c *Communicator) file() {
	f := &c.filing
	if f.dir == "" {
		return
	}
	go func() {
		defer close(f.done)
		f.mu.Lock()
		gone, report := f.gone, watch.Report{}
		if !gone {
			report = c.report()
		}
		f.mu.Unlock()
		if gone {
			return
		}
		if err := writeReport(report, f.dir); err != nil {
			c.logger.Warn("the records were not written", "communicator", c.label, "rank", c.rank, "directory", f.dir, "reason", err)
		}
	}()
}

// wait is called between a failure and the error that a call answers.
func (f *filing) wait() {
	if f.dir != "" && !f.late.Load() && !f.within(filingDelay) {
		f.late.Store(true)
	}
}

// close is called before what was recorded goes.
func (f *filing) close(failed bool) {
	if f.dir != "" && failed {
		f.within(closingDelay)
	}
	f.mu.Lock()
	f.gone = true
	f.mu.Unlock()
}

// within reports whether the writing has come to its end, for which it waits so long.
func (f *filing) within(patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-f.done:
		return true
	case <-timer.C:
		return false
	}
}

// Records are the latest operations of this rank, oldest first, as many as
// SHUNT_RECORDS says. They are gone once the communicator is closed.
func (c *Communicator) Records() []watch.Entry { return watch.Entries(c.flightsOf()) }

// WriteRecords writes the flight recorder as one JSON object.
func (c *Communicator) WriteRecords(w io.Writer) error { return c.report().WriteJSON(w) }

func (c *Communicator) report() watch.Report {
	r := watch.Report{
		Head: watch.Head{
			Communicator: c.label, Job: c.job.session.Job(), Rank: c.rank, World: c.world,
			PID: c.job.place.PID, Host: c.job.place.Host,
		},
		Operations: c.Records(),
	}
	r.Last = watch.LastCall(c.state(c.rank), r.Operations)
	if f := c.failure.Load(); f != nil {
		r.Code, r.Failure = plugin.CodeOf(f).String(), f.Error()
	}
	return r
}
