package host

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/internal/endpoints"
	"github.com/shunt-ccl/shunt/host/internal/job"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/host/internal/regroup"
	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/host/internal/survey"
	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// Init joins the job and returns the communicator of all its ranks. It is collective. A failure on one rank is every
// rank's error. Close the communicator when done.
func Init(ctx context.Context, o Options) (made *Communicator, err error) {
	defer noteContext(ctx, &err)
	if err := descriptors.Ready(); err != nil { // before anything waits
		return nil, plugin.Errorf(plugin.CodeOf(err), "init: %w", err)
	}
	j, err := job.New(job.Config(o))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, j.Timeout)
	defer cancel()
	if err := j.Join(ctx); err != nil {
		return nil, err
	}
	return newCommunicator(ctx, j, "init", "world", j.Session.All().Ranks(), j.Timeout)
}

// Register makes a builtin transport available under its own name, for every communicator of this process: see
// carrier.Register.
func Register(t plugin.Transport) { carrier.Register(t) }

// newCommunicator makes the communicator of the given ranks of the job, each of which calls this with the same label.
// On error everything made so far is released.
func newCommunicator(ctx context.Context, j *job.Job, what, label string, ranks []int, timeout time.Duration) (
	_ *Communicator, err error) {
	rank := slices.Index(ranks, j.Session.Rank())
	label = regroup.Label(label)
	c := &Communicator{
		job:     j,
		checker: call.Checker{Rank: rank, World: len(ranks), OnDevice: j.GPU != nil},
		observer: diagnosis.Observer{Rank: rank, World: len(ranks), Label: label, OnDevice: j.GPU != nil,
			Logger: j.Logger},
	}
	c.observer.SetTimeout(timeout)
	c.turn.Perform, c.turn.Refuse = c.perform, c.observer.ClosedError
	c.ledger.Observer, c.closeOnce = &c.observer, sync.OnceValue(c.close)
	c.plans = plans.Planner{Observer: &c.observer, Memory: j.Memory, Stall: j.Options.Stall(),
		News: endpoints.NewsTakes(len(ranks), job.Lookout), Fail: c.fail, Absent: map[string]string{}}
	c.member = job.Member{Observer: &c.observer, Ranks: ranks, Fail: c.fail, Look: c.look}
	c.observer.Making.Store(true)
	c.observer.Failure.SetUp(j.Options.RecordsDir())
	c.endpoints = endpoints.Set{Observer: &c.observer, Plans: &c.plans, Fail: c.fail, Lookout: job.Lookout,
		Symmetric: buffers.NewSymmetric(&c.observer)}
	c.scratch.arrays = make([]int64, 4*c.World())
	if err := j.Hold(&c.member); err != nil {
		return nil, plugin.Errorf(plugin.CodeOf(err), "%s on rank %d: %w", what, rank, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.group, err = j.Session.Group(label, ranks); err != nil {
		return nil, plugin.Errorf(plugin.CodeOf(err), "%s on rank %d: %w", what, rank, err)
	}
	c.group.SetTimeout(timeout)
	c.plans.Group, c.member.Group, c.endpoints.Group = c.group, c.group, c.group
	failed := c.makeExecutors(ctx) // agreed on below
	found, err := j.Survey(ctx, &c.member, what)
	if err != nil {
		return nil, err
	}
	if failed == nil {
		failed = c.adopt(found)
	}
	var absent map[string]error
	if err = failed; err == nil {
		absent, err = c.endpoints.Open(ctx, c.member.Loaded, plugin.OpenConfig{Communicator: found.ID, Rank: c.Rank(),
			World: c.World(), Memory: j.Memory, Device: j.Device, MaxSMs: found.MaxSMs}, j.Options.Transport)
	}
	published, publication := c.plans.Publish(ctx, err)
	if err := round.Exchange(ctx, c.group, "open their transports ("+label+")", round.Agreement(c.Rank(), err),
		found.Readers, c.plans.LeaveOut(absent, c.endpoints.Optional), publication, c.endpoints.Meet()); err != nil {
		return nil, c.observer.WrapError(what, err)
	}
	failed = c.readPeers(found)
	leaveOut := c.plans.LeaveOut(published.Connect(ctx, c.endpoints.Optional), c.endpoints.Optional)
	alone := []plugin.Collective{plugin.Send, plugin.Recv}
	if c.device != nil {
		alone = c.device.alone()
	}
	if err := c.endpoints.Connect(ctx, found.ID, failed, leaveOut, func(failed error) error {
		return c.plans.PrepareAlone(ctx, "prepare their plans ("+label+")", failed, alone...)
	}); err != nil {
		return nil, c.observer.WrapError(what, err)
	}
	c.begin(ctx)
	return c, nil
}

var failAgreed = failpoint.New("communicator.agreed",
	"when the ranks have agreed on a new communicator, before it is returned")

// begin starts a communicator once its ranks have agreed that it is there. Nothing of it may fail: the others have the
// communicator then, and this rank would not.
func (c *Communicator) begin(ctx context.Context) {
	failAgreed.Hit()
	c.observer.Making.Store(false)
	var gpu []any
	c.endpoints.Watch(c.job.Context)
	if g := c.job.GPU; g != nil {
		gpu = []any{"device", g.Info.Ordinal, "gpu", g.Info.Name, "bus", g.Info.Bus, "device_bytes", c.DeviceBytes()}
	}
	c.plans.Inform(ctx, gpu...)
	c.plans.InformOfTuning(ctx)
}

var newEngine = executor.NewEngine // tests replace it

// makeExecutors makes what runs plans on this rank. A failure here is one of all ranks: this rank reports it in their
// first agreement.
func (c *Communicator) makeExecutors(ctx context.Context) (failed error) {
	if c.engine, failed = newEngine(c.Rank(), c.World()); failed == nil {
		c.observer.Engine = c.engine
		failed = c.engine.SetFlights(c.job.Options.Records())
	}
	ctx, cancel := plans.TransportTime(ctx)
	defer cancel()
	loaded, err := c.job.Revive(ctx)
	c.member.Loaded = loaded // which the ranks compare
	if failed == nil {
		failed = err
	}
	if c.job.GPU != nil && failed == nil {
		c.device, failed = newDevice(c)
	}
	if c.engine != nil {
		c.job.Watch(&c.member)
	}
	return failed
}

// adopt takes over what the ranks have found out about each other.
func (c *Communicator) adopt(found *survey.Found) error {
	c.compares = found.Checks && c.device != nil
	c.endpoints.Optional = !found.Named
	c.plans.NVLink = found.Topology.NVLink()
	c.plans.Table = c.job.Table.On(found.Topology.Class())
	c.engine.SetOversubscribed(found.Topology.Oversubscribed(c.Rank()))
	if spins := c.job.Options.Spin(); spins >= 0 {
		c.engine.SetPolicy(executor.Policy{Spins: uint32(spins), Yields: 2000})
	}
	if c.device != nil {
		return nil
	}
	return c.engine.SetDelays(c.job.Delays)
}

// readPeers has the executor read peers' memory, if every rank can.
func (c *Communicator) readPeers(found *survey.Found) error {
	c.plans.PeerRead = found.PeerRead
	if !found.PeerRead {
		return nil
	}
	for rank, place := range found.Topology.Places {
		if err := c.engine.SetPeerProcess(rank, place.PID); err != nil {
			return err
		}
	}
	return nil
}
