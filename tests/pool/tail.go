package pool

import (
	"fmt"
	"sync"
)

// tail keeps the first and the last bytes written to it: a crash says at its
// beginning what happened, and at its end what happened last.
type tail struct {
	mu    sync.Mutex
	limit int // of both parts together; a quarter is for the first
	first []byte
	last  []byte
	lost  int
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	written := len(p)
	n := min(len(p), t.limit/4-len(t.first))
	t.first = append(t.first, p[:n]...)
	t.last = append(t.last, p[n:]...)
	if over := len(t.last) - (t.limit - t.limit/4); over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
		t.lost += over
	}
	return written, nil
}

func (t *tail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first, t.last, t.lost = t.first[:0], t.last[:0], 0
}

// String returns the bytes that were kept, with a mark where bytes are lost.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost > 0 {
		return fmt.Sprintf("%s\n… %d bytes …\n%s", t.first, t.lost, t.last)
	}
	return string(t.first) + string(t.last)
}
