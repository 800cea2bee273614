package pool

import "sync"

// tail keeps the last bytes written to it.
type tail struct {
	mu    sync.Mutex
	limit int
	kept  []byte
	cut   bool
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.limit; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
		t.cut = true
	}
	return len(p), nil
}

func (t *tail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept, t.cut = t.kept[:0], false
}

// String is what was kept, with a mark in front when the beginning is lost.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cut {
		return "…" + string(t.kept)
	}
	return string(t.kept)
}
