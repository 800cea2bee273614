package process

import "os"

// echo measures whether this process itself handles what arrives for it. A busy machine,
// or goroutines that keep every processor, may delay a reply that the plugin sent long
// ago.
type echo struct {
	r, w *os.File
	back chan struct{} // capacity 1: a byte has come back; closed with the pipe
	sent bool
}

// newEcho opens a pipe to this process; nil if there are no descriptors left.
func newEcho() *echo {
	r, w, err := os.Pipe()
	if err != nil {
		return nil
	}
	e := &echo{r: r, w: w, back: make(chan struct{}, 1)}
	go func() {
		defer close(e.back)
		var b [1]byte
		for {
			if _, err := e.r.Read(b[:]); err != nil {
				return
			}
			e.back <- struct{}{}
		}
	}()
	return e
}

// prompt reports whether the byte sent by the last call has come back, and sends
// the next one.
func (e *echo) prompt() bool {
	if e == nil {
		return false
	}
	if e.sent {
		select {
		case <-e.back:
		default:
			return false
		}
	}
	first := !e.sent
	_, err := e.w.Write([]byte{0})
	e.sent = err == nil
	return e.sent && !first
}

func (e *echo) close() {
	if e == nil {
		return
	}
	e.w.Close()
	e.r.Close()
	for range e.back { // until its goroutine has ended
	}
}
