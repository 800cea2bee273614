package plans

import (
	"fmt"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// Blame finds whose plan an operation of the CPU's executor ran that has failed. It looks the choice up again, so that
// operations that succeed need not note it.
type Blame struct {
	Planner *Planner
	Call    *call.Call  // the only operation,
	Group   []call.Call // or those of a group
}

// serving returns the transport and the algorithm of an operation; nil if it is not known.
func (b Blame) serving(launch int) (*Transport, string) {
	call := b.Call
	if b.Group != nil {
		if launch < 0 || launch >= len(b.Group) {
			return nil, ""
		}
		call = &b.Group[launch]
	}
	p := b.Planner.cache.find(call.Signature())
	if p == nil {
		return nil, ""
	}
	i := p.choice.Pick(call.Size)
	if i < 0 {
		return nil, ""
	}
	candidate := p.choice.Candidates()[i]
	return b.Planner.Transports[candidate.Endpoint], call.Collective.String() + " by " + candidate.Qualified
}

// Where says in which step of which plan an operation stopped.
func (b Blame) Where(f *executor.Failure) string {
	_, name := b.serving(f.Launch)
	if name == "" || f.Step < 0 {
		return ""
	}
	return fmt.Sprintf("in step %d of track %d of %s", f.Step, f.Track, name)
}

// Failed words the failure of a plan, in the transport's own words where it has any. A native function that has not
// returned takes its endpoint with it.
func (b Blame) Failed(f *executor.Failure) string {
	t, name := b.serving(f.Launch)
	if t == nil {
		return f.Error()
	}
	if f.Stuck {
		t.stuck = "a native function of " + name
	}
	if f.Step < 0 {
		return name + ": " + f.Reason
	}
	return fmt.Sprintf("%s, step %d of track %d: %s", name, f.Step, f.Track, f.Reason)
}

// Lose says what of the endpoint has not returned: the endpoint cannot be closed.
func (a *Transport) Lose(what string) { a.stuck = what }

// Abort tells the endpoint that its communicator has failed.
func (a *Transport) Abort(reason string) {
	a.aborting.Lock()
	defer a.aborting.Unlock()
	if aborter, ok := a.Endpoint.(plugin.Aborter); ok {
		aborter.Abort(reason)
	}
}

// Check asks the endpoint what has failed between calls.
func (a *Transport) Check() error {
	if checker, ok := a.Endpoint.(plugin.Checker); ok {
		return checker.Check()
	}
	return nil
}

// Close closes the endpoint, unless one of its functions still runs.
func (a *Transport) Close() error {
	if a.Endpoint == nil {
		return nil
	}
	endpoint := a.Endpoint
	a.aborting.Lock() // Abort has returned, or comes no more
	a.Endpoint = nil
	a.aborting.Unlock()
	if a.stuck != "" {
		return plugin.Errorf(plugin.Timeout, "transport %s: its endpoint was not closed, because %s has not returned", a.Name,
			a.stuck)
	}
	return endpoint.Close()
}
