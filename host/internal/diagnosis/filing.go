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

// How long calls and Close wait until the other ranks are notified, and for the file. Tests change them.
var (
	FilingDelay  = 250 * time.Millisecond
	ClosingDelay = 2 * time.Second
)

// WriteReport is report.Report.WriteFile, except in tests.
var WriteReport = report.Report.WriteFile

// filing is the writing of that file.
type filing struct {
	dir  string        // "": nothing is written
	done chan struct{} // closed when the file is written, or cannot be
	late atomic.Bool   // a call has waited for it as long as any may

	mu     sync.Mutex
	closed bool // the communicator is, and what was recorded is gone
}

func (f *filing) setUp(dir string) {
	if dir == "" {
		return
	}
	if absolute, err := filepath.Abs(dir); err == nil { // the program may change its directory
		dir = absolute
	}
	f.dir, f.done = dir, make(chan struct{})
}

// File begins to write what collect returns, for a communicator that has failed. It is called once.
func (f *filing) File(logger *slog.Logger, collect func() report.Report) {
	if f.dir == "" {
		return
	}
	go func() {
		defer close(f.done)
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
	}()
}

func (f *filing) wait() {
	if f.dir != "" && !f.late.Load() && !within(f.done, FilingDelay) {
		f.late.Store(true)
	}
}

func (f *filing) close(failed bool) {
	if f.dir != "" && failed {
		within(f.done, ClosingDelay)
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
