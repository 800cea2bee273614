package job

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// Lookout is the longest time that a kernel's fault goes unseen between calls. A caller that reads the communicator's
// error without a call, as a framework's watchdog does, sees it after that time at most, whatever SHUNT_STALL_WARNING
// says.
const Lookout = 250 * time.Millisecond

// Member is a communicator as its job knows it.
type Member struct {
	*diagnosis.Observer
	Group  *bootstrap.Group
	Ranks  []int             // the communicator's ranks as ranks of the job
	Loaded []*carrier.Loaded // the transports as the communicator found them

	// Fail makes the communicator fail; with spread the other ranks learn it.
	Fail func(reason *plugin.Error, spread bool)
	// Look looks at operations that wait for long, and finds ranks that disagree about what is being called.
	Look func()
}

// InJob returns ranks of the communicator as ranks of the job.
func (m *Member) InJob(ranks []int) []int {
	of := make([]int, len(ranks))
	for i, rank := range ranks {
		of[i] = m.Ranks[rank]
	}
	return of
}

// Watch makes m fail when a peer or plugin of its dies, and looks at its stalls.
func (j *Job) Watch(m *Member) { j.set(m, true) }

// Forget stops watching m.
func (j *Job) Forget(m *Member) { j.set(m, false) }

func (j *Job) set(m *Member, watched bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.members[m] = watched
}

// each calls f for a snapshot of the communicators that are watched.
func (j *Job) each(f func(*Member)) {
	j.mu.Lock()
	members := maps.Clone(j.members)
	j.mu.Unlock()
	for m, watched := range members {
		if watched {
			f(m)
		}
	}
}

// watchPeers turns what the store reports into failures of communicators.
func (j *Job) watchPeers() {
	for {
		select {
		case <-j.Context.Done():
			return
		case f, ok := <-j.Session.Failures():
			if !ok {
				return
			}
			j.each(func(m *Member) { m.hear(f) })
		}
	}
}

// hear makes the communicator fail if the failure is of its group, or of one of its ranks.
func (m *Member) hear(f bootstrap.Failure) {
	rank := slices.Index(m.Ranks, f.Rank)
	switch {
	case f.Group == m.Group.Key():
		m.Fail(f.Err, false)
	case f.Group == "" && rank >= 0:
		m.Fail(m.PeerLost(rank, f.Rank, f.Err), false)
	}
}

var failLost = failpoint.New("plugin.lost", "a plugin's process has ended, before the communicators that use it fail")

// watchPlugin fails every communicator that uses a plugin's process when that ends.
func (j *Job) watchPlugin(l *carrier.Loaded) {
	if l.Died() == nil {
		return
	}
	j.watchers.Go(func() {
		select {
		case <-j.Context.Done():
		case <-l.Died():
			if j.Context.Err() != nil {
				return
			}
			failLost.Hit()
			j.Logger.Warn("transport lost", "transport", l.Info.Name, "pid", l.PID(), "reason", l.Err())
			j.each(func(m *Member) { m.lose(l) })
		}
	})
}

// LoseDead fails the communicator if a plugin's process that it uses has ended, where the caller has seen that before
// the job's own watch.
func (m *Member) LoseDead() {
	for _, l := range m.Loaded {
		if l.Err() != nil {
			m.lose(l)
		}
	}
}

// lose fails the communicator if it uses the plugin's process that has ended, and not the next one.
func (m *Member) lose(l *carrier.Loaded) {
	if slices.Contains(m.Loaded, l) {
		m.Fail(&plugin.Error{
			Code: plugin.PluginDied, Rank: m.Rank, Cause: l.Err(),
			Message: fmt.Sprintf("rank %d lost its transport %s: %v", m.Rank, l.Info.Name, l.Err()),
		}, true)
	}
}

// watchStalls has every communicator looked at regularly.
func (j *Job) watchStalls() {
	ticker := time.NewTicker(min(max(j.Options.Stall()/4, 10*time.Millisecond), Lookout))
	defer ticker.Stop()
	for {
		select {
		case <-j.Context.Done():
			return
		case <-ticker.C:
			j.each(func(m *Member) { m.Look() })
		}
	}
}
