package launch

import (
	"bytes"
	"io"
	"sync"
)

// maxLine is the longest line that is kept whole; a longer one is broken.
const maxLine = 64 << 10

// lineWriter writes whole lines with a prefix, so that the output of several
// ranks mixes only between lines.
type lineWriter struct {
	to      io.Writer
	prefix  []byte
	lock    *sync.Mutex // of the destination
	pending []byte      // an unfinished line
}

func newLineWriter(to io.Writer, prefix string, lock *sync.Mutex) *lineWriter {
	return &lineWriter{to: to, prefix: []byte(prefix), lock: lock}
}

// Write takes any piece of output. It is called from one goroutine at a time.
func (w *lineWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		switch {
		case i >= 0:
			w.pending = append(w.pending, p[:i]...)
			p = p[i+1:]
		default:
			w.pending = append(w.pending, p...)
			p = nil
			if len(w.pending) < maxLine {
				return n, nil
			}
		}
		if err := w.emit(); err != nil {
			return n - len(p), err
		}
	}
	return n, nil
}

// flush writes an unfinished last line.
func (w *lineWriter) flush() {
	if len(w.pending) > 0 {
		_ = w.emit() // the rank has ended; there is nobody to tell
	}
}

func (w *lineWriter) emit() error {
	line := append(append(append([]byte(nil), w.prefix...), w.pending...), '\n')
	w.pending = w.pending[:0]
	w.lock.Lock()
	defer w.lock.Unlock()
	_, err := w.to.Write(line)
	return err
}
