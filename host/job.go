package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/lockorder"
	"github.com/shunt-ccl/shunt/host/internal/logs"
	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// job holds what the communicators of one rendezvous share: the session with the
// store, the loaded transports, and the goroutine that watches them. It lives
// as long as its last communicator.
type job struct {
	ctx       context.Context
	cancel    context.CancelCauseFunc
	session   *bootstrap.Session
	place     topology.Place
	options   *option.Options
	memory    plugin.MemoryKind
	gpu       *gpu // nil for host memory
	timeout   time.Duration
	maxSMs    int // budget of this rank's communicators, 0: none
	delays    *executor.Delays
	optional  bool   // the transports are those that are there, not those that the user has named
	checks    bool   // SHUNT_CHECK: compare every collective across ranks
	unchecked func() // ends the check of the order of locks; nil: there is none
	logger    *slog.Logger
	records   *logs.Handler // of logger
	table     *selector.Table

	reviving sync.Mutex
	mu       sync.Mutex
	loaded   []*carrier.Loaded
	members  map[*Communicator]bool
	refs     int
	watchers sync.WaitGroup
}

// watchers run until the job's context ends.
func (j *job) start() {
	if j.checks {
		j.unchecked = lockorder.Check(nil)
	}
	j.watchers.Add(2)
	go j.watchPeers()
	go j.watchStalls()
	for _, l := range j.loaded {
		j.watchIfProcess(l)
	}
}

// transports returns the transports as they are loaded now.
func (j *job) transports() []*carrier.Loaded {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.loaded)
}

// revive starts the plugins again whose process has died, so that a communicator made
// after that works, and returns all transports. Older communicators keep what they had.
func (j *job) revive(ctx context.Context) ([]*carrier.Loaded, error) {
	j.reviving.Lock()
	defer j.reviving.Unlock()
	for i, l := range j.transports() {
		if l.Err() == nil {
			continue
		}
		again, err := l.Again(ctx)
		if err != nil {
			return j.transports(), err
		}
		j.mu.Lock()
		j.loaded[i] = again
		j.mu.Unlock()
		j.watchIfProcess(again)
		_ = l.Close() // it is dead: this collects what is left of it
	}
	return j.transports(), nil
}

// watchIfProcess has the communicators fail when a plugin's process dies.
func (j *job) watchIfProcess(l *carrier.Loaded) {
	if l.Died() != nil {
		j.watchers.Add(1)
		go j.watchPlugin(l)
	}
}

// hold keeps the job alive until the release that belongs to it.
func (j *job) hold() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.refs++
}

// watch makes c fail when a peer or plugin of its dies, and looks at its stalls.
func (j *job) watch(c *Communicator) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.members[c] = true
}

// forget stops watching c.
func (j *job) forget(c *Communicator) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.members, c)
}

// release lets go of the job; the last one ends it.
func (j *job) release() error {
	j.mu.Lock()
	j.refs--
	last := j.refs == 0
	j.mu.Unlock()
	if !last {
		return nil
	}
	return j.end()
}

func (j *job) end() error {
	j.cancel(plugin.Errorf(plugin.Closed, "the job has ended"))
	err := j.session.Close()
	j.watchers.Wait()
	for _, l := range j.loaded {
		err = errors.Join(err, l.Close())
	}
	if j.unchecked != nil {
		j.unchecked()
	}
	err = errors.Join(err, j.gpu.close())
	j.records.Flush()
	return err
}

// ordinal returns the job's device, or -1.
func (j *job) ordinal() int {
	if j.gpu == nil {
		return -1
	}
	return j.gpu.info.Ordinal
}

// each calls f for a snapshot of the communicators.
func (j *job) each(f func(*Communicator)) {
	j.mu.Lock()
	members := make([]*Communicator, 0, len(j.members))
	for c := range j.members {
		members = append(members, c)
	}
	j.mu.Unlock()
	for _, c := range members {
		f(c)
	}
}

// watchPeers turns what the store reports into failures of communicators.
func (j *job) watchPeers() {
	defer j.watchers.Done()
	for {
		select {
		case <-j.ctx.Done():
			return
		case f, ok := <-j.session.Failures():
			if !ok {
				return
			}
			j.each(func(c *Communicator) {
				switch {
				case f.Group == c.group.Key():
					c.fail(f.Err, false)
				case f.Group == "" && c.member(f.Rank):
					c.fail(c.observer.PeerLost(slices.Index(c.ranks, f.Rank), f.Rank, f.Err), false)
				}
			})
		}
	}
}

// member reports whether a rank of the job belongs to the communicator.
func (c *Communicator) member(jobRank int) bool { return slices.Contains(c.ranks, jobRank) }

// watchPlugin fails every communicator that uses a plugin's process when that ends.
func (j *job) watchPlugin(l *carrier.Loaded) {
	defer j.watchers.Done()
	select {
	case <-j.ctx.Done():
	case <-l.Died():
		if j.ctx.Err() != nil {
			return
		}
		j.logger.Warn("transport lost", "transport", l.Info.Name, "pid", l.PID(), "reason", l.Err())
		j.each(func(c *Communicator) {
			if !slices.Contains(c.loaded, l) { // it has the plugin's next process
				return
			}
			c.fail(&plugin.Error{
				Code: plugin.PluginDied, Rank: c.rank, Cause: l.Err(),
				Message: fmt.Sprintf("rank %d lost its transport %s: %v", c.rank, l.Info.Name, l.Err()),
			}, true)
		})
	}
}

// watchStalls looks at operations that wait for long, and finds the ranks that
// disagree about what is being called.
func (j *job) watchStalls() {
	defer j.watchers.Done()
	stall := j.options.Stall()
	ticker := time.NewTicker(min(max(stall/4, 10*time.Millisecond), lookout))
	defer ticker.Stop()
	for {
		select {
		case <-j.ctx.Done():
			return
		case <-ticker.C:
			j.each(func(c *Communicator) {
				c.tell()
				c.compareCalls()
				if c.device != nil {
					c.device.look()
					c.device.contradictions()
					c.watchdog.LookAtRejections(&c.observer, stall)
					return
				}
				if reason := c.watchdog.LookAtStall(&c.observer, stall); reason != nil {
					c.fail(reason, true)
				}
			})
		}
	}
}
