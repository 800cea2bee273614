package diagnosis

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/report"
	"github.com/shunt-ccl/shunt/plugin"
)

// Failure holds the reason why a communicator has failed, once it has, and the file that it leaves behind then.
type Failure struct {
	filing
	reason atomic.Pointer[plugin.Error]
	told   chan struct{} // closed when the other ranks know the reason as far as this one can see to it

	met     atomic.Bool                 // by a call, which returns it
	refused atomic.Pointer[report.Call] // the first call, if it was made after the failure
}

// Reason returns the reason why the communicator has failed; nil while it has not.
func (f *Failure) Reason() *plugin.Error { return f.reason.Load() }

// Set gives the reason, and reports whether it is the first.
func (f *Failure) Set(reason *plugin.Error) bool { return f.reason.CompareAndSwap(nil, reason) }

// SetUp is called before the communicator can fail. The file is for a directory; "": there is none.
func (f *Failure) SetUp(dir string) {
	f.told = make(chan struct{})
	f.filing.setUp(dir)
}

// While returns a context that also ends when the communicator has failed.
func (f *Failure) While(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-f.told:
			cancel(f.Reason())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Refused notes a call that is made after the failure, and reports whether the file is to have it: unless another call
// has met the failure, or this one comes late.
func (f *Failure) Refused(call *report.Call) bool {
	if f.met.Swap(true) || f.Reason().Code == plugin.Timeout || !f.isNew() {
		return false
	}
	f.refused.Store(call)
	return true
}

// LastCall returns the call that this rank made last, by what LastCall finds and what was refused.
func (f *Failure) LastCall(page State, operations []report.Entry) *report.Call {
	if refused := f.refused.Load(); refused != nil {
		return refused
	}
	return LastCall(page, operations)
}

// Told is called once after Set, when the other ranks have been sent the reason.
func (f *Failure) Told() { close(f.told) }

// Wait is called between a failure and the error that the program gets: one that ends as soon as it has it would else
// be all that the other ranks learn of.
func (f *Failure) Wait() {
	within(f.told, FilingDelay)
	f.filing.wait()
}

// Close is called before the connection to the other ranks, and what was recorded, go.
func (f *Failure) Close() {
	failed := f.Reason() != nil
	if failed {
		within(f.told, ClosingDelay)
	}
	f.filing.close(failed)
}

// Numbered names an operation for its errors: a collective with its number, which is the same on all ranks and what
// their records and watchdogs say.
func Numbered(collective plugin.Collective, number uint64) string {
	if collective.PointToPoint() {
		return collective.String()
	}
	return fmt.Sprintf("%s #%d", collective, number)
}

// Failed returns nil unless the communicator has failed; then it is the error of the call that meets the failure.
func (o *Observer) Failed(what string) error {
	if f := o.Failure.Reason(); f != nil {
		return o.FailureError(what, f)
	}
	return nil
}

// FailureError words a failure for the call that meets it.
func (o *Observer) FailureError(what string, reason *plugin.Error) error {
	o.Failure.met.Store(true)
	o.Failure.Wait()
	message := fmt.Sprintf("%s on rank %d: %s", what, o.Rank, reason.Message)
	if !o.Making.Load() {
		message += fmt.Sprintf("; communicator %s is aborted, shrink or re-create it", o.Label)
	}
	return &plugin.Error{Code: reason.Code, Rank: reason.Rank, Cause: reason, Message: message}
}

// WrapError puts the call's name and rank in front of an error of another layer.
func (o *Observer) WrapError(what string, err error) error {
	if f := o.Failure.Reason(); f != nil {
		return o.FailureError(what, f)
	}
	code := plugin.CodeOf(err)
	rank := o.Rank
	var e *plugin.Error
	if errors.As(err, &e) && e.Rank >= 0 {
		rank = e.Rank
	}
	message := fmt.Sprintf("%s on rank %d: %v", what, o.Rank, err)
	switch code {
	case plugin.Timeout, plugin.PeerDied, plugin.Closed:
		message += o.rejections(agreement)
	}
	return &plugin.Error{Code: code, Rank: rank, Message: message, Cause: err}
}

// ClosedError returns the error of a call on a closed communicator.
func (o *Observer) ClosedError(what string) error {
	return &plugin.Error{Code: plugin.Closed, Rank: o.Rank,
		Message: fmt.Sprintf("%s on rank %d: communicator %s is closed", what, o.Rank, o.Label)}
}

// Plans knows whose plan an operation ran that has failed.
type Plans interface {
	// Where says in which step of which plan it stopped; "" if that is not known.
	Where(f *executor.Failure) string
	// Failed says that, and why, for any failure of a plan.
	Failed(f *executor.Failure) string
}

// RunFailure turns the error of an operation that the executor ran into the reason why the communicator fails.
func (o *Observer) RunFailure(err error, plans Plans) *plugin.Error {
	var detail *executor.Failure
	reason := &plugin.Error{Code: plugin.CodeOf(err), Rank: o.Rank, Message: err.Error(), Cause: err}
	if !errors.As(err, &detail) {
		var e *plugin.Error
		if errors.As(err, &e) && e.Rank >= 0 {
			reason.Rank = e.Rank
		}
		return reason
	}
	reason.Message = fmt.Sprintf("rank %d: %s", o.Rank, plans.Failed(detail))
	switch {
	case detail.Native && detail.Code == plugin.PeerDied && o.State(detail.Rank).HasClosed(): // so its connections end
		return o.Deserted(detail.Rank)
	case detail.Native:
		if detail.Rank >= 0 && detail.Rank < o.World {
			reason.Rank = detail.Rank
			place := o.Topology.Places[detail.Rank]
			reason.Message += fmt.Sprintf("; rank %d is pid %d on host %s", detail.Rank, place.PID, place.Host)
			if detail.Code == plugin.PeerDied && !o.Topology.SameHost(detail.Rank, o.Rank) && !o.heard(detail.Rank) {
				reason.Message += "; hosts reach each other by the interfaces that their transport uses" + o.interfaces()
			}
		}
		if detail.Code == plugin.Mismatch { // what the ranks have called says more, where it is known
			if known := o.contradiction(detail.Rank); known != nil {
				return known
			}
		}
		return reason
	case detail.Code == plugin.InvalidArgument: // the caller's memory, not the plan
		reason.Message = detail.Reason
	case detail.Code == plugin.Timeout:
		reason = o.peerTimeout(detail.Rank, plans.Where(detail), detail.Deadline)
		reason.Cause = err
	}
	if detail.Code == plugin.Mismatch {
		reason = o.disagreed(detail.Rank)
	}
	if detail.Code == plugin.PeerDied && detail.Rank >= 0 {
		reason.Message = o.PeerName(detail.Rank) + " ended while its memory was read"
		reason.Rank = detail.Rank
	}
	return reason
}

// FailedAlready returns the error of an operation that failed after the communicator had, with err.
func (o *Observer) FailedAlready(what string, err error, plans Plans) error {
	f := o.Failure.Reason()
	var detail *executor.Failure
	if errors.As(err, &detail) && detail.Stuck {
		f = &plugin.Error{Code: f.Code, Rank: f.Rank, Cause: f, Message: f.Message + "; and " + plans.Failed(detail)}
	}
	return o.FailureError(what, f)
}
