package host

import (
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/call"
)

// A program that must handle something else between calls, such as signals, bounds how long a call blocks: a call that
// takes longer continues as a request. A run that waits is paused where it is, and another goroutine takes it to its
// end.

// outcome is the progress of an operation.
type outcome int

const (
	ended   outcome = iota // well, or with an error
	paused                 // the limit passed while it ran: the engine must be resumed
	untried                // it must agree with the other ranks first, which may take any time
)

// DoFor is like Do, but blocks for limit at most. An operation that has not ended by then continues as a request, which
// DoFor returns; its memory belongs to the library until the request has ended. Otherwise the request is nil, and the
// error is the operation's. A call that ends in time costs what Do costs. A limit of 0 or less is none. On device
// memory DoFor waits until the operation is in its stream; the limit does not apply while that stream is full, nor to a
// turn for the calling thread's own stream (CU_STREAM_PER_THREAD).
func (c *Communicator) DoFor(op *Operation, limit time.Duration) (*Request, error) {
	_ = *op // as in Do
	if limit <= 0 || c.threads(op) {
		return nil, c.Do(op)
	}
	if !c.turn.Try() {
		r, err := c.enqueue(op)
		if err != nil {
			return nil, err
		}
		return r.within(limit)
	}
	if c.quick(op) {
		c.turn.Leave()
		return nil, nil
	}
	over := false
	defer c.unwind(&over)
	state, err := c.run(op, limit)
	over = true
	switch state {
	case ended:
		c.turn.Leave()
		return nil, err
	case untried:
		r := newRequest([]Operation{*op})
		c.turn.HandOver(func() { c.perform(r) })
		return r.within(limit)
	}
	r := newRequest([]Operation{*op})
	c.turn.HandOver(func() { r.end(c.complete(r.operations[0].Collective, c.engine.Resume())) })
	return r, nil
}

// RunFor is like Run, with the limit of DoFor.
func (g *Group) RunFor(c *Communicator, limit time.Duration) (*Request, error) {
	if limit <= 0 || len(g.operations) == 0 || c.anyThreads(g.operations) {
		return nil, g.Run(c)
	}
	operations := g.operations
	g.operations = g.operations[:0]
	if !c.turn.Try() {
		r, err := c.enqueueGroup(operations)
		if err != nil {
			return nil, err
		}
		return r.within(limit)
	}
	over := false
	defer c.unwind(&over)
	state, err := c.runGroup(operations, limit)
	over = true
	if state == ended {
		c.turn.Leave()
		return nil, err
	}
	r := newRequest(operations)
	c.turn.HandOver(func() { r.end(c.finish("group", c.engine.Resume())) })
	return r, nil
}

// SynchronizeFor is like Synchronize, with the limit of DoFor. It takes some 10 µs more, for another goroutine.
func (c *Communicator) SynchronizeFor(stream Stream, limit time.Duration) (*Request, error) {
	if limit <= 0 || c.device == nil || streamOf(stream) == cuda.PerThreadStream {
		return nil, c.Synchronize(stream)
	}
	r := newRequest(nil)
	go func() { r.end(c.Synchronize(stream)) }()
	return r.within(limit)
}

// within waits for a request: nil and its error, or the request if it continues. Then its error is for who waits on,
// also after Close.
func (r *Request) within(limit time.Duration) (*Request, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.done:
		return nil, r.err
	case <-timer.C:
		return r, nil
	}
}

// needsAgreement reports whether a call begins with an agreement of all ranks; known: it is the latest one again.
func (c *Communicator) needsAgreement(call *call.Call, known bool) bool {
	return c.compares && !call.Collective.PointToPoint() || !known && !c.plans.Known(call)
}
