package launch

import (
	"bytes"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// maxLine is the longest line that is kept back until it is whole; of a longer
// one, pieces are passed on.
const maxLine = 1 << 20

// keptRoom is the most room that a rank's writer keeps when a line has been passed on.
const keptRoom = 64 << 10

// outlet merges the lines of several ranks. It ends a line only where one rank's
// output would otherwise continue another's unfinished line; apart from prefixes
// everything else arrives as it was written.
type outlet struct {
	to   io.Writer
	lock *sync.Mutex // shared by outlets that may lead to the same place
	open *lineWriter // whose unfinished line was written last
}

// newOutlets returns the outlets of both streams. Only where they may lead to the same place do they take turns: what
// is not read on one must not keep the other back.
func newOutlets(stdout, stderr io.Writer) (out, errs *outlet) {
	out, errs = &outlet{to: stdout, lock: new(sync.Mutex)}, &outlet{to: stderr, lock: new(sync.Mutex)}
	type file interface{ Stat() (os.FileInfo, error) }
	one, isFile := stdout.(file)
	other, areFiles := stderr.(file)
	if isFile && areFiles {
		a, err := one.Stat()
		b, otherErr := other.Stat()
		if err == nil && otherErr == nil && !os.SameFile(a, b) {
			return out, errs
		}
	}
	errs.lock = out.lock
	return out, errs
}

// lineWriter is one rank's way to an outlet: it keeps a line back until it is
// whole, so that the output of several ranks mixes only between lines.
type lineWriter struct {
	outlet  *outlet
	prefix  []byte
	pending []byte // an unfinished line
}

func newLineWriter(to *outlet, prefix string) *lineWriter {
	return &lineWriter{outlet: to, prefix: []byte(prefix)}
}

// Write takes any piece of output. It is called from one goroutine at a time.
// All the lines that end in p are written at once.
func (w *lineWriter) Write(p []byte) (int, error) {
	whole := bytes.LastIndexByte(p, '\n') + 1
	if whole > 0 {
		whole += len(w.pending)
	}
	w.pending = append(w.pending, p...)
	if len(w.pending)-whole >= maxLine {
		whole = len(w.pending)
	}
	if whole == 0 {
		return len(p), nil
	}
	err := w.emit(w.pending[:whole])
	rest := w.pending[whole:]
	if w.pending = w.pending[:0]; cap(w.pending) > keptRoom {
		w.pending = nil
	}
	w.pending = append(w.pending, rest...)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush writes an unfinished last line.
func (w *lineWriter) flush() {
	if len(w.pending) > 0 {
		_ = w.emit(w.pending) // the rank has ended, and no caller takes the error
		w.pending = nil
	}
}

// emit passes text on.
func (w *lineWriter) emit(text []byte) error {
	o := w.outlet
	o.lock.Lock()
	defer o.lock.Unlock()
	var out []byte
	continued := o.open == w
	if o.open != nil && !continued {
		out = append(out, '\n')
	}
	o.open = nil
	if text[len(text)-1] != '\n' {
		o.open = w
	}
	if len(w.prefix) == 0 {
		out = append(out, text...)
	} else {
		for line := range bytes.Lines(text) {
			if !continued {
				out = append(out, w.prefix...)
			}
			continued = false
			out = append(out, line...)
		}
	}
	_, err := o.to.Write(out)
	return err
}

// Terminal reports whether w is one: there lines mix as they always do, but
// programs see that a person is looking.
func Terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	is := false
	err = raw.Control(func(fd uintptr) {
		_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		is = err == nil
	})
	return err == nil && is
}
