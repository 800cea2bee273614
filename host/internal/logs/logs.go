// Package logs stands between Shunt and the program's log handler. A goroutine of its own hands the records on, in
// their order. A caller waits until its record is handled, so that a program that ends afterwards has it, but for
// HandlerLimit at most: a handler that blocks, or calls Shunt, must not hold up what Shunt has to tell other ranks.
package logs

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// HandlerLimit bounds how long a record may delay its caller. After that, records delay no caller until all are
	// handled.
	HandlerLimit = 100 * time.Millisecond
	// Parting bounds how long the end of a job waits for the records that a slow handler still has to take.
	Parting = time.Second
	// longest limits the records that wait for the handler; later ones are only counted.
	longest = 1024
)

// Handler is a slog.Handler in front of the program's.
type Handler struct {
	queue *queue
	to    slog.Handler
}

// New returns a Handler with a queue of its own. The goroutine behind it ends whenever the queue is empty.
func New(to slog.Handler) *Handler { return &Handler{queue: &queue{}, to: to} }

// Enabled asks the program's handler, which must not block here.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.to.Enabled(ctx, level)
}

// WithAttrs returns a Handler with the same queue.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{h.queue, h.to.WithAttrs(attrs)}
}

// WithGroup returns a Handler with the same queue.
func (h *Handler) WithGroup(name string) slog.Handler { return &Handler{h.queue, h.to.WithGroup(name)} }

// Handle returns when the program's handler has, or after HandlerLimit.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	e := &entry{to: h.to, ctx: ctx, record: r.Clone(), done: make(chan struct{})}
	if h.queue.push(e) && !within(e.done, HandlerLimit) {
		h.queue.stuck()
	}
	return nil
}

// Flush waits until all records are handled, for Parting at most.
func (h *Handler) Flush() {
	h.queue.Lock()
	idle := h.queue.idle
	h.queue.Unlock()
	if idle != nil {
		within(idle, Parting)
	}
}

type entry struct {
	to      slog.Handler
	ctx     context.Context
	record  slog.Record
	missing int           // records after this one that were dropped
	done    chan struct{} // closed when it is handled
}

func (e *entry) handle() {
	defer close(e.done)
	_ = e.to.Handle(e.ctx, e.record) // slog.Logger drops the error too
	if e.missing > 0 && e.to.Enabled(e.ctx, slog.LevelWarn) {
		r := slog.NewRecord(time.Now(), slog.LevelWarn, "log records are missing here: the program's handler took too long", 0)
		r.Add("missing", e.missing)
		_ = e.to.Handle(e.ctx, r)
	}
}

type queue struct {
	sync.Mutex
	waiting []*entry
	idle    chan struct{} // closed when the goroutine ends; nil: there is none
	late    bool          // calls do not wait for the handler
}

// push queues a record, and reports whether to wait for it.
func (q *queue) push(e *entry) bool {
	q.Lock()
	defer q.Unlock()
	if len(q.waiting) >= longest {
		q.waiting[longest-1].missing++
		return false
	}
	q.waiting = append(q.waiting, e)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.deliver()
	}
	return !q.late
}

// deliver ends when the queue is empty. Where a handler ends its goroutine, as t.Fatal does, another one goes on.
func (q *queue) deliver() {
	e := q.pop()
	defer func() {
		if e != nil {
			go q.deliver()
		}
	}()
	for ; e != nil; e = q.pop() {
		e.handle()
	}
}

// pop takes the oldest record; nil: there is none, and the goroutine ends.
func (q *queue) pop() *entry {
	q.Lock()
	defer q.Unlock()
	if len(q.waiting) == 0 {
		close(q.idle)
		q.idle, q.late = nil, false
		return nil
	}
	e := q.waiting[0]
	q.waiting = q.waiting[1:]
	return e
}

func (q *queue) stuck() {
	q.Lock()
	defer q.Unlock()
	q.late = q.idle != nil
}

// within reports whether a channel is closed, for which it waits that long.
func within(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
