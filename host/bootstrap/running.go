package bootstrap

import (
	"context"
	"sync"
	"time"
)

// afterRunning calls f when d has passed, in time in which this process can run: a stop counts one of its parts at
// most, as it does for the reads of a connection. Those that are waited for may have been stopped with it.
func afterRunning(d time.Duration, f func()) (stop func()) {
	var mu sync.Mutex
	left, part := waitParts, d/waitParts+1
	var timer *time.Timer
	mu.Lock() // the first part may pass before timer is set
	defer mu.Unlock()
	timer = time.AfterFunc(part, func() {
		mu.Lock()
		left--
		over := left == 0
		if left > 0 {
			timer.Reset(part)
		}
		mu.Unlock()
		if over {
			f()
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		left = 0
		timer.Stop()
	}
}

// withinRunning returns a context that ends like parent, or when d has passed as afterRunning counts it.
func withinRunning(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	stop := afterRunning(d, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}
