package bootstrap

import (
	"log/slog"
	"sync"
	"time"
)

// quietFor is the time after a warning in which further ones are only counted.
const quietFor = 10 * time.Second

// throttle keeps unverified connections from filling the log: of the warnings of one listener
// one is written in ten seconds, with the number of those before it that were not.
type throttle struct {
	mu         sync.Mutex
	last       time.Time
	suppressed int
}

func (t *throttle) warn(logger *slog.Logger, text string, attributes ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if !t.last.IsZero() && now.Sub(t.last) < quietFor {
		t.suppressed++
		return
	}
	if t.suppressed > 0 {
		attributes = append(attributes, "suppressed", t.suppressed)
	}
	t.last, t.suppressed = now, 0
	logger.Warn(text, attributes...)
}
