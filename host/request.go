package host

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// Request is a non-blocking operation or group in flight.
type Request struct {
	operations []Operation
	group      bool // they run as a group, even if it is one
	pinner     runtime.Pinner
	done       chan struct{}
	err        error
	unheard    atomic.Bool // it was started, and nobody has asked for err yet; a call returns its own
}

// Start begins an operation and returns at once. Its memory must stay valid
// and unchanged until Wait or Test says that it has ended; op and its counts and
// displacements are the caller's again at once. Operations of one
// communicator run in the order they were started. The calling thread's own stream
// (CU_STREAM_PER_THREAD) is refused.
func (c *Communicator) Start(op *Operation) (*Request, error) {
	if err := c.rejectThreadStream("start", []Operation{*op}); err != nil {
		return nil, err
	}
	r := newRequest([]Operation{*op})
	r.unheard.Store(true)
	return c.push(op.Collective.String(), r)
}

// Start begins the group's operations together and empties the group. The request of an empty group has ended.
func (g *Group) Start(c *Communicator) (*Request, error) {
	operations := g.operations
	g.operations = g.operations[:0]
	if len(operations) == 0 {
		r := newRequest(nil)
		r.end(nil)
		return r, nil
	}
	if err := c.rejectThreadStream("start", operations); err != nil {
		return nil, err
	}
	r := newGroupRequest(operations)
	r.unheard.Store(true)
	return c.push("group", r)
}

// newRequest returns a request for operations, whose memory stays in place from now on. The caller's slices are copied.
func newRequest(operations []Operation) *Request {
	r := &Request{operations: slices.Clone(operations), done: make(chan struct{})}
	for i := range r.operations {
		r.operations[i].copyCounts()
		// Memory of Go's must not move; pinning other memory does nothing.
		pin(&r.pinner, operations[i].Send)
		pin(&r.pinner, operations[i].Recv)
	}
	return r
}

// copyCounts makes copies of the counts and displacements, which the caller may change while the operation waits.
func (op *Operation) copyCounts() {
	op.SendCounts, op.SendDispls = slices.Clone(op.SendCounts), slices.Clone(op.SendDispls)
	op.RecvCounts, op.RecvDispls = slices.Clone(op.RecvCounts), slices.Clone(op.RecvDispls)
}

// newGroupRequest returns a request for operations that run as one group.
func newGroupRequest(operations []Operation) *Request {
	r := newRequest(operations)
	r.group = true
	return r
}

// enqueue puts a call that waits for its operation behind everything started before.
func (c *Communicator) enqueue(op *Operation) (*Request, error) {
	return c.push(op.Collective.String(), newRequest([]Operation{*op}))
}

// enqueueGroup does so with operations that run as one group.
func (c *Communicator) enqueueGroup(operations []Operation) (*Request, error) {
	return c.push("group", newGroupRequest(operations))
}

func (c *Communicator) push(what string, r *Request) (*Request, error) {
	if err := c.turn.Push(what, r); err != nil {
		r.pinner.Unpin()
		return nil, err
	}
	return r, nil
}

// perform runs the operations of a request to their end. It holds the turn.
func (c *Communicator) perform(r *Request) {
	var err error
	repeats := c.lookForFailure() // what made the communicator fail is another call's error
	if r.group {
		_, err = c.runGroup(r.operations, 0)
	} else {
		_, err = c.run(&r.operations[0], 0)
	}
	r.end(err)
	if err != nil && !repeats && r.unheard.Load() && (c.lost == nil || !c.lost.unheard.Load()) {
		c.lost = r
	}
}

// end wakes the callers that wait.
func (r *Request) end(err error) {
	r.err = err
	r.pinner.Unpin()
	close(r.done)
}

// Wait returns the operation's error once it has ended. If ctx ends first, the error wraps ctx's and its cause, with
// code Timeout after its deadline and Aborted if it was canceled; the operation continues.
func (r *Request) Wait(ctx context.Context) error {
	if ended, err := r.Test(); ended {
		return err
	}
	select {
	case <-r.done:
		_, err := r.Test()
		return err
	case <-ctx.Done():
		return plugin.Errorf(plugin.CodeOf(ctx.Err()), "wait: the context of this call has ended: %w", contextEnd(ctx))
	}
}

// Test reports whether the operation has ended, and its error if it has.
func (r *Request) Test() (bool, error) {
	select {
	case <-r.done:
		r.unheard.Store(false)
		return true, r.err
	default:
		return false, nil
	}
}

// Done returns a channel that is closed once the operation has ended. Its error, unlike after Wait and Test, counts as
// one that nobody has asked for: Close returns it.
func (r *Request) Done() <-chan struct{} { return r.done }

// pin keeps Go memory in place while C holds its address. Null and memory that
// is not Go's need nothing.
func pin(pinner *runtime.Pinner, p unsafe.Pointer) {
	if p != nil {
		pinner.Pin(p)
	}
}
