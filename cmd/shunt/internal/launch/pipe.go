package launch

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pipe carries one stream of a rank to a writer of the launcher.
type pipe struct {
	from *os.File
	done chan struct{} // closed when all has been passed on
}

// newPipe returns a pipe to a writer, and the end that the rank gets.
func newPipe(to io.Writer) (*pipe, *os.File, error) {
	from, end, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	p := &pipe{from, make(chan struct{})}
	go p.carry(to)
	return p, end, nil
}

// carry passes on what is written, until no process has the other end, or expire has ended it. Where the writer fails,
// the rank's writes fail from then on.
func (p *pipe) carry(to io.Writer) {
	defer close(p.done)
	defer func() { _ = p.from.Close() }() // was only read
	if _, err := io.Copy(to, p.from); !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	// Another process has the other end. What is in the pipe now may be the rank's own: the writer may have been slow.
	_ = p.from.SetReadDeadline(time.Time{})
	if n, err := unix.IoctlGetInt(int(p.from.Fd()), unix.TIOCINQ); err == nil {
		_, _ = io.CopyN(to, p.from, int64(n)) // its error has no effect: nothing comes after it
	}
}

// expire has carry end after that time, when the rank has ended: a process that keeps the other end must not keep the
// job. All that the rank has written is passed on, however slow the writer is.
func (p *pipe) expire(after time.Duration) {
	_ = p.from.SetReadDeadline(time.Now().Add(after)) // fails where carry has ended
}

// streams are what a rank writes, on its way to the launcher's output.
type streams struct {
	ends    []*os.File // the rank's
	pipes   []*pipe
	between io.Closer // of Job.Intercept; nil: none
	lines   []*lineWriter
}

// writer returns an outlet's terminal itself if nothing is added to it, else a writer of whole lines.
func (s *streams) writer(to *outlet, prefix string) io.Writer {
	if prefix == "" && Terminal(to.to) {
		return to.to
	}
	w := newLineWriter(to, prefix)
	s.lines = append(s.lines, w)
	return w
}

// pipe returns what a rank gets to write to a writer: a file as it is, else a pipe.
func (s *streams) pipe(to io.Writer) (io.Writer, error) {
	if file, is := to.(*os.File); is {
		return file, nil
	}
	p, end, err := newPipe(to)
	if err != nil {
		return nil, err
	}
	s.pipes, s.ends = append(s.pipes, p), append(s.ends, end)
	return end, nil
}

// started closes the rank's ends: it has its own copies, or it was not started.
func (s *streams) started() {
	for _, end := range s.ends {
		_ = end.Close()
	}
}

// expire gives what the rank has started that time to end its output.
func (s *streams) expire(after time.Duration) {
	late := time.NewTimer(after)
	defer late.Stop()
	for _, p := range s.pipes {
		p.expire(after)
	}
	for _, p := range s.pipes {
		select {
		case <-p.done:
		case <-late.C:
			return
		}
	}
}

// finish returns when all that the rank has written is passed on.
func (s *streams) finish() {
	for _, p := range s.pipes {
		<-p.done
	}
	if s.between != nil {
		_ = s.between.Close() // its error has no effect
	}
	for _, l := range s.lines {
		l.flush()
	}
}
