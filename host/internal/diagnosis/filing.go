package diagnosis

import (
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/host/report"
)

// A communicator that fails leaves behind what this rank ran last, as a file in SHUNT_RECORDS_DIR. A goroutine of its
// own writes it, once all ranks have been notified of the failure: a disk delays no other rank. Here it delays the
// error of calls by FilingDelay at most, and Close by ClosingDelay, so that a program which ends as soon as it has
// either has its file, unless the disk is slower than that.
//
// The news of a failure may come while this rank is still leaving a call that the others have left. Where its next call
// then fails, the file is written once more, with that call as the last: the rank was not behind.

// How long calls and Close wait until the other ranks are notified, and for the file. Tests change them.
var (
	FilingDelay  = 250 * time.Millisecond
	ClosingDelay = 2 * time.Second
)

// briefly is how long after the failure a call counts as made by then. One that comes later, or after a timeout, was
// missing: the file stays as it was.
const briefly = time.Second

// WriteReport is report.Report.WriteFile, except in tests.
var WriteReport = report.Report.WriteFile

// filing is the writing of that file.
type filing struct {
	dir   string        // "": nothing is written
	first chan struct{} // closed when the file is written, or cannot be
	late  atomic.Bool   // a call has waited for it as long as any may

	mu     sync.Mutex
	began  time.Time     // the writing, soon after the failure
	last   chan struct{} // closed when the newest file is written, or cannot be
	closed bool          // the communicator is, and what was recorded is gone
}

func (f *filing) setUp(dir string) {
	if dir == "" {
		return
	}
	if absolute, err := filepath.Abs(dir); err == nil { // the program may change its directory
		dir = absolute
	}
	f.dir, f.first = dir, make(chan struct{})
	f.last = f.first
}

// File begins to write what collect returns, for a communicator that has failed. It is called once.
func (f *filing) File(logger *slog.Logger, collect func() report.Report) {
	if f.dir == "" {
		return
	}
	f.mu.Lock()
	f.began = time.Now()
	f.mu.Unlock()
	go func() {
		defer close(f.first)
		f.write(logger, collect)
	}()
}

// FileAgain writes what collect returns once more, behind the first file. It is called once.
func (f *filing) FileAgain(logger *slog.Logger, collect func() report.Report) {
	if f.dir == "" {
		return
	}
	done := make(chan struct{})
	f.mu.Lock()
	f.last = done
	f.mu.Unlock()
	go func() {
		defer close(done)
		<-f.first
		f.write(logger, collect)
	}()
}

func (f *filing) write(logger *slog.Logger, collect func() report.Report) {
	f.mu.Lock()
	closed, r := f.closed, report.Report{}
	if !closed {
		r = collect()
	}
	f.mu.Unlock()
	if closed {
		return
	}
	if err := WriteReport(r, f.dir); err != nil {
		logger.Warn("the records were not written", "communicator", r.Communicator, "rank", r.Rank, "directory", f.dir,
			"reason", err)
	}
}

// isNew says whether the failure has come briefly before now, or comes now.
func (f *filing) isNew() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.began.IsZero() || time.Since(f.began) < briefly
}

// written is closed when the newest file is written, or cannot be.
func (f *filing) written() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

func (f *filing) wait() {
	if f.dir != "" && !f.late.Load() && !within(f.written(), FilingDelay) {
		f.late.Store(true)
	}
}

func (f *filing) close(failed bool) {
	if f.dir != "" && failed {
		within(f.written(), ClosingDelay)
	}
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
}

// within reports whether a channel is closed, for which it waits that long.
func within(done <-chan struct{}, limit time.Duration) bool {
	select {
	case <-done:
		return true
	default:
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
