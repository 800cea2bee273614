package host

import (
	"fmt"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// serving is the transport and the algorithm of an operation of the CPU's executor that
// has failed: the only one, or one of a group. It looks the choice up again, so that
// operations that succeed need not note it. nil: it is not known.
func (c *Communicator) serving(launch int) (*attached, string) {
	call := &c.scratch.call
	if c.inFlight != nil {
		if launch < 0 || launch >= len(c.inFlight) {
			return nil, ""
		}
		call = &c.inFlight[launch]
	}
	c.signatures.mu.Lock()
	p := c.signatures.known[call.Signature()]
	c.signatures.mu.Unlock()
	if p == nil {
		return nil, ""
	}
	i := p.choice.Pick(call.Size)
	if i < 0 {
		return nil, ""
	}
	candidate := p.choice.Candidates()[i]
	return c.attached[candidate.Endpoint], call.Collective.String() + " by " + candidate.Qualified
}

// Where says in which step of which plan an operation stopped.
func (c *Communicator) Where(f *executor.Failure) string {
	_, name := c.serving(f.Launch)
	if name == "" || f.Step < 0 {
		return ""
	}
	return fmt.Sprintf("in step %d of track %d of %s", f.Step, f.Track, name)
}

// NativeFailed words the failure of a transport's native function, in the transport's
// own words where it has any. One that has not returned takes its endpoint with it.
func (c *Communicator) NativeFailed(f *executor.Failure) string {
	a, name := c.serving(f.Launch)
	if a == nil {
		return f.Error()
	}
	text := fmt.Sprintf("%s, step %d of track %d: %s", name, f.Step, f.Track, f.Reason)
	if f.Stuck {
		a.stuck = "a native function of " + name
		return text
	}
	if l, ok := a.endpoint.(interface{ LastError() string }); ok {
		if said := l.LastError(); said != "" {
			text += ": " + said
		}
	}
	return text
}

// closeEndpoint lets go of the endpoint, unless one of its functions still runs.
func (a *attached) closeEndpoint() error {
	if a.endpoint == nil {
		return nil
	}
	endpoint := a.endpoint
	a.endpoint = nil
	if a.stuck != "" {
		return plugin.Errorf(plugin.Timeout, "transport %s: its endpoint was not closed, because %s has not returned", a.loaded.Info.Name, a.stuck)
	}
	return endpoint.Close()
}
