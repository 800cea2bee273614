package network

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Condition says how one direction of a link treats frames. The zero value passes all of them on at once.
type Condition struct {
	Cut       bool    // nothing passes
	Loss      float64 // probabilities
	Duplicate float64
	Reorder   float64 // a frame overtakes those that are delayed
	Delay     time.Duration
	Rate      int                     // bytes a second; 0: no limit
	Stops     func(frame []byte) bool // a firewall, which drops what it returns true for
}

// queueTime bounds how long a frame may wait for its turn at Rate before it is dropped, as in a router with a short
// queue.
const queueTime = 200 * time.Millisecond

// lane is one direction of a link.
type lane struct {
	deliver func(frame []byte)
	queue   chan delayed

	mu        sync.Mutex
	condition Condition
	free      time.Time // when the frames that wait have left, at Rate
}

type delayed struct {
	frame []byte
	due   time.Time
}

func newLane(deliver func([]byte)) *lane {
	l := &lane{deliver: deliver, queue: make(chan delayed, 4096)}
	go func() {
		for d := range l.queue {
			time.Sleep(time.Until(d.due))
			l.deliver(d.frame)
		}
	}()
	return l
}

func (l *lane) set(c Condition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.condition = c
}

// send takes a frame over.
func (l *lane) send(frame []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.condition
	if c.Cut || rand.Float64() < c.Loss || (c.Stops != nil && c.Stops(frame)) {
		return
	}
	if rand.Float64() < c.Duplicate {
		l.enqueue(frame)
	}
	l.enqueue(frame)
}

// enqueue gives a frame its time. The caller holds mu.
func (l *lane) enqueue(frame []byte) {
	c, now := &l.condition, time.Now()
	if rand.Float64() < c.Reorder {
		l.deliver(frame)
		return
	}
	due := now
	if c.Rate > 0 {
		if l.free.Sub(now) > queueTime {
			return
		}
		if l.free.Before(now) {
			l.free = now
		}
		l.free = l.free.Add(time.Duration(len(frame)) * time.Second / time.Duration(c.Rate))
		due = l.free
	}
	select {
	case l.queue <- delayed{frame, due.Add(c.Delay)}:
	default: // as a router's
	}
}
