package launch

import (
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// EndLine on a lifeline asks the launcher of a machine to end its ranks and to report.
const EndLine = "end"

// endReport bounds the time that the launchers of machines take for that; it grows while one of them writes. Tests
// change it.
var endReport = 5 * time.Second

// maxQueued bounds what is to be written to a launcher that does not read.
const maxQueued = 64

// SignalLine on a lifeline asks the launcher of a machine to forward a signal to its ranks.
func SignalLine(s syscall.Signal) string { return "signal " + strconv.Itoa(int(s)) }

// ParseSignalLine returns the signal of a SignalLine, and false for another line.
func ParseSignalLine(line string) (syscall.Signal, bool) {
	text, found := strings.CutPrefix(line, "signal ")
	number, err := strconv.ParseUint(text, 10, 6)
	return syscall.Signal(number), found && err == nil && number > 0
}

// lifeline is the way to the launcher of a machine. Its end of the pipe stays open: a launcher whose standard input
// ends has lost the one that started it.
type lifeline struct {
	to io.WriteCloser

	mu     sync.Mutex
	ended  bool
	queued chan string
}

func newLifeline(to io.WriteCloser) *lifeline {
	return &lifeline{to: to, queued: make(chan string, maxQueued)}
}

// write writes what a lifeline begins with, then what is said, until the end. A process that has ended, or is stuck,
// does not read it.
func (l *lifeline) write(beginning []byte) {
	_, err := l.to.Write(beginning)
	for line := range l.queued {
		if err == nil {
			_, err = io.WriteString(l.to, line+"\n")
		}
	}
}

// say queues a line and does not block.
func (l *lifeline) say(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	select {
	case l.queued <- line:
	default: // the process is stuck, and will be ended by a signal
	}
}

// end lets write return, when the process has ended or was not started.
func (l *lifeline) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	close(l.queued)
	_ = l.to.Close() // nobody reads it
}

// counted counts what is written, and notes that something was.
type counted struct {
	to    io.Writer
	times *atomic.Int64
	begun *atomic.Bool
}

func (c *counted) Write(p []byte) (int, error) {
	c.times.Add(1)
	c.begun.Store(true)
	return c.to.Write(p)
}
