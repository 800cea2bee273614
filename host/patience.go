package host

import (
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
)

// A program that must look after something else now and then, such as signals
// that a language handles between calls, has patience: a call that takes longer
// goes on as a request. Nothing is lost by it: a run that waits is paused where
// it is, and another goroutine takes it to its end.

// outcome is how far an operation has come.
type outcome int

const (
	ended   outcome = iota // well, or with an error
	paused                 // patience was over while it ran: the engine is to be resumed
	untried                // it would have to ask the other ranks first, which takes as long as they like
)

// DoFor is Do for callers with patience: an operation that has not ended when it
// is over goes on as a request, which is returned, and its memory belongs to the
// library until that has ended. Otherwise the request is nil, and the error is
// the operation's. A call that ends in time costs what Do costs. Patience of 0 or
// less is any amount. On device memory what is waited for is the putting into
// the stream; a stream that is full is waited for with no patience, and so is a turn
// for the calling thread's own stream (CU_STREAM_PER_THREAD).
func (c *Communicator) DoFor(op *Operation, patience time.Duration) (*Request, error) {
	if patience <= 0 || c.threads(op) {
		return nil, c.Do(op)
	}
	if !c.turn.Try() {
		return c.enqueueFor([]Operation{*op}, patience)
	}
	if c.quick(op) {
		c.release()
		return nil, nil
	}
	state, err := c.run(op, patience)
	switch state {
	case ended:
		c.release()
		return nil, err
	case untried:
		r := newRequest([]Operation{*op})
		go c.goOn(r, func() error { return c.perform(r.operations) })
		return r.within(patience)
	}
	r := newRequest([]Operation{*op})
	what := diagnosis.Numbered(op.Collective, c.sequence.Collectives)
	go c.goOn(r, func() error { return c.finish(what, c.engine.Resume()) })
	return r, nil
}

// RunFor is Run with the patience of DoFor.
func (g *Group) RunFor(c *Communicator, patience time.Duration) (*Request, error) {
	if patience <= 0 || len(g.operations) == 0 || c.anyThreads(g.operations) {
		return nil, g.Run(c)
	}
	operations := append([]Operation(nil), g.operations...)
	g.operations = g.operations[:0]
	if !c.turn.Try() {
		return c.enqueueFor(operations, patience)
	}
	state, err := c.runGroup(operations, patience)
	if state == ended {
		c.release()
		return nil, err
	}
	r := newRequest(operations)
	go c.goOn(r, func() error { return c.finish("group", c.engine.Resume()) })
	return r, nil
}

// SynchronizeFor is Synchronize with the patience of DoFor. It hands over to
// another goroutine and back, some 10 µs.
func (c *Communicator) SynchronizeFor(stream Stream, patience time.Duration) (*Request, error) {
	if patience <= 0 || c.device == nil || streamOf(stream) == cuda.PerThreadStream {
		return nil, c.Synchronize(stream)
	}
	r := newRequest(nil)
	go func() { r.end(c.Synchronize(stream)) }()
	return r.within(patience)
}

// goOn takes a request to its end, and then those behind it. It holds the turn.
func (c *Communicator) goOn(r *Request, rest func() error) {
	r.end(rest())
	c.drain()
}

// enqueueFor is enqueue and a wait.
func (c *Communicator) enqueueFor(operations []Operation, patience time.Duration) (*Request, error) {
	r, err := c.enqueue(operations)
	if err != nil {
		return nil, err
	}
	return r.within(patience)
}

// within waits for a request: nil and its error, or the request if it goes on.
func (r *Request) within(patience time.Duration) (*Request, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-r.done:
		return nil, r.err
	case <-timer.C:
		return r, nil
	}
}

// needsAgreement reports whether a call begins with an agreement of all ranks.
func (c *Communicator) needsAgreement(call *call.Call) bool {
	return c.device != nil && c.job.checks && !call.Collective.PointToPoint() ||
		!c.plans.Known(call)
}
