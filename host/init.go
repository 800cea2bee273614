package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/internal/logs"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/host/internal/survey"
	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// Init joins the job and returns the communicator of all its ranks. It is
// collective. A failure on one rank is every rank's error. Close the
// communicator when done.
func Init(ctx context.Context, o Options) (*Communicator, error) {
	if err := descriptors.Ready(); err != nil { // before anything waits
		return nil, plugin.Errorf(plugin.CodeOf(err), "init: %w", err)
	}
	options, warnings := option.Load(os.Environ())
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: options.LogLevel()}))
	}
	records := logs.New(logger.Handler())
	logger = slog.New(records)
	for _, w := range warnings {
		logger.Warn(w.String())
	}
	if problem := failpoint.Problem(); problem != nil {
		logger.Warn("SHUNT_FAILPOINTS", "problem", problem)
	}
	timeout := o.Timeout
	if timeout == 0 {
		timeout = options.Timeout()
	}
	if timeout < 0 {
		return nil, plugin.Errorf(plugin.InvalidArgument, "init: timeout %v is negative", timeout)
	}
	if o.Memory != plugin.MemoryKindHost && o.Memory != plugin.MemoryKindCuda {
		return nil, plugin.Errorf(plugin.InvalidArgument, "init: memory kind %d is unknown", uint32(o.Memory))
	}
	budget := o.MaxSMs
	if budget == 0 {
		budget = options.MaxSMs()
	}
	if budget < 0 || budget > math.MaxInt32 {
		return nil, plugin.Errorf(plugin.InvalidArgument,
			"init: a budget of %d multiprocessors; want 1 or more, or 0 for SHUNT_MAX_SMS", budget)
	}
	delays, err := executor.ParseDelays(options.Delays())
	if err != nil {
		return nil, plugin.Errorf(plugin.InvalidArgument, "init: SHUNT_DELAYS: %w", err)
	}
	config, err := rendezvous(o, options, timeout)
	if err != nil {
		return nil, err
	}
	config.Logger = logger

	j := &job{
		place: topology.Local(), options: options, memory: o.Memory,
		timeout: timeout, maxSMs: budget, delays: delays, checks: options.Check(), logger: logger,
		records: records, members: map[*Communicator]bool{},
	}
	table, refused := newTable(o, options, config.Rank, logger) // every rank is told below
	j.table = table
	transports, named := specs(o, options, logger)
	j.optional = !named
	// Before all those ranks meet.
	if err := worldTooLarge(carrier.BuiltinInfos(transports), o.Memory, config.World); err != nil {
		return nil, fmt.Errorf("init: %w", err)
	}
	joinCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if j.session, err = bootstrap.Join(joinCtx, config); err != nil {
		return nil, errors.Join(refused, err)
	}
	j.ctx, j.cancel = context.WithCancelCause(context.Background())
	j.place.Rank = config.Rank
	loadCtx, cancelLoad := plans.TransportTime(joinCtx)
	defer cancelLoad()
	if err = refused; err == nil {
		j.loaded, err = carrier.LoadAll(loadCtx, transports, logger)
	}
	if err == nil && o.Memory == plugin.MemoryKindCuda {
		if j.gpu, err = openGPU(o, config.Rank, os.Getenv); err == nil {
			j.place.GPUs = []topology.GPU{j.gpu.place()}
		}
	}
	if err = j.session.All().Agree(joinCtx, "load", err); err != nil {
		return nil, errors.Join(err, j.end())
	}
	names := make([]string, len(j.loaded))
	for i, l := range j.loaded {
		names[i] = l.Info.Name
	}
	names = append(names, carrier.Registered()...) // their options are known, whether they are used here or not
	for _, w := range options.Unclaimed(names) {
		logger.Warn(w.String())
	}
	j.start()
	ranks := make([]int, j.session.World())
	for i := range ranks {
		ranks[i] = i
	}
	return newCommunicator(joinCtx, j, "init", "world", ranks)
}

// rendezvous decides rank, world and meeting place: what the options say goes
// before the environment.
func rendezvous(o Options, options *option.Options, timeout time.Duration) (bootstrap.Config, error) {
	var config bootstrap.Config
	if o.World == 0 {
		var err error
		if config, err = bootstrap.FromEnvironment(os.Getenv); err != nil {
			return config, err
		}
	} else {
		config.Rank, config.World = o.Rank, o.World
		config.Secret = options.Secret()
		if o.World > 1 || o.ID == "env" { // alone, a rank needs no place to meet
			config.URL = options.ID()
		}
	}
	if config.World < 1 || config.World > plugin.MaxWorld || config.Rank < 0 || config.Rank >= config.World {
		return config, plugin.Errorf(plugin.InvalidArgument,
			"init: rank %d of world %d is out of range, want a world of 1 to %d ranks", config.Rank, config.World,
			plugin.MaxWorld)
	}
	if o.ID != "" && o.ID != "env" {
		config.URL = o.ID
	}
	config.Timeout = timeout
	config.Heartbeat = options.Heartbeat()
	return config, nil
}

// specs returns the list of transports to load, and whether the user has named them.
func specs(o Options, options *option.Options, logger *slog.Logger) (list []string, named bool) {
	if len(o.Transports) > 0 {
		return o.Transports, true
	}
	if list := options.Transports(); len(list) > 0 {
		return list, true
	}
	for _, name := range carrier.Registered() {
		list = append(list, string(carrier.Builtin)+":"+name)
	}
	if dir := options.PluginDir(); dir != "" {
		found, err := carrier.Discover(dir)
		if err != nil {
			logger.Warn("no plugins found", "reason", err)
		}
		for _, spec := range found {
			list = append(list, spec.String())
		}
	}
	return list, false
}

// newTable reads what the environment and, before it, the options in code say
// about the choice of algorithms. Rank 0's costs will count for all ranks, so another
// rank's file need not be there.
func newTable(o Options, options *option.Options, rank int, logger *slog.Logger) (*selector.Table, error) {
	algo := o.Algo
	if algo == "" {
		algo = options.Algo()
	}
	override, err := selector.Parse(algo)
	if err != nil {
		return nil, err
	}
	costs := selector.Costs{Mode: selector.Mode(options.TuningMode())}
	if o.Memory == plugin.MemoryKindCuda {
		costs.Builtin = selector.Builtin()
	}
	path := o.TuningFile
	if path == "" {
		path = options.TuningFile()
	}
	if path != "" {
		if costs.Tuning, err = selector.ReadTuning(path); err != nil {
			if rank == 0 {
				return nil, err
			}
			logger.Warn("tuning file not read; rank 0's costs count", "reason", err)
		}
	}
	return selector.New(selector.WithOverride(override), selector.WithCosts(costs)), nil
}

// takeCosts makes rank 0's costs those of this job, where some ranks have others.
func (j *job) takeCosts(ctx context.Context, ranks *survey.Survey, found *survey.Found) error {
	if len(found.Unlike) == 0 {
		return nil
	}
	text, err := ranks.RankZeros(ctx, "take rank 0's costs", j.table.Costs().Encode())
	if err != nil || ranks.Rank == 0 {
		return err
	}
	costs, err := selector.DecodeCosts(text)
	if err == nil && costs.Digest() != found.Costs {
		err = plugin.Errorf(plugin.Protocol, "costs have digest %s, want %s", costs.Digest(), found.Costs)
	}
	if err != nil {
		return &plugin.Error{Code: plugin.Protocol, Cause: err,
			Message: fmt.Sprintf("%s: rank 0's costs: %v", ranks.Call, err)}
	}
	if j.table.Digest() != found.Costs {
		j.logger.Warn("tuning file or SHUNT_TUNING_MODE differs from rank 0's, which counts", "rank", ranks.Rank)
		j.table = selector.New(selector.WithOverride(j.table.Override()), selector.WithCosts(costs))
	}
	return nil
}

var communicatorCount atomic.Uint64

// newCommunicator makes the communicator of the given ranks of the job, each
// of which calls this with the same label. On error everything made so far is
// released.
func newCommunicator(ctx context.Context, j *job, what, label string, ranks []int) (_ *Communicator, err error) {
	rank := slices.Index(ranks, j.session.Rank())
	c := &Communicator{
		rank: rank, world: len(ranks), label: label, ranks: ranks,
		job: j, logger: j.logger, windows: map[uint32]*Window{},
		checker: call.Checker{Rank: rank, World: len(ranks), OnDevice: j.gpu != nil},
		observer: diagnosis.Observer{Rank: rank, World: len(ranks), Label: label, OnDevice: j.gpu != nil, Timeout: j.timeout,
			Logger: j.logger},
	}
	c.symmetric = buffers.NewSymmetric(&c.observer)
	c.plans = plans.Planner{Observer: &c.observer, Memory: j.memory, Stall: j.options.Stall(),
		Fail: c.fail, Absent: map[string]string{}}
	c.observer.Failure.SetUp(j.options.RecordsDir())
	c.scratch.arrays = make([]int64, 4*c.world)
	j.hold()
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.group, err = j.session.Group(label, ranks); err != nil {
		return nil, plugin.Errorf(plugin.CodeOf(err), "%s on rank %d: %w", what, rank, err)
	}
	c.plans.Group = c.group
	if c.engine, err = executor.NewEngine(c.rank, c.world); err != nil {
		return nil, err
	}
	c.observer.Engine = c.engine
	if err = c.engine.SetFlights(j.options.Records()); err != nil {
		return nil, err
	}
	reviveCtx, cancel := plans.TransportTime(ctx)
	defer cancel()
	var failed error // agreed on below
	c.loaded, failed = j.revive(reviveCtx)
	if j.gpu != nil && failed == nil {
		c.device, failed = newDevice(c)
	}
	j.watch(c)
	id, err := c.introduce(ctx, what)
	if err != nil {
		return nil, err
	}
	var absent map[string]error
	if err = failed; err == nil {
		absent, err = c.open(ctx, id)
	}
	if err == nil && c.device == nil {
		err = c.engine.SetDelays(j.delays)
	}
	if err := c.group.Agree(ctx, "open their transports ("+label+")", err); err != nil {
		return nil, c.observer.WrapError(what, err)
	}
	// What serves the host memory of one host serves it everywhere.
	if j.gpu != nil || len(c.observer.Topology.Hosts()) > 1 {
		if err := c.plans.LeaveOut(ctx, "leave transports out ("+label+")", absent, j.optional); err != nil {
			return nil, c.observer.WrapError(what, err)
		}
	}
	if err := c.plans.ExchangeBytes(ctx, j.optional); err != nil {
		return nil, c.observer.WrapError(what, err)
	}
	if err := c.settle(); err != nil { // alike on all ranks
		return nil, c.observer.WrapError(what, err)
	}
	c.opened.Store(true)
	if err := c.connect(ctx); err != nil {
		return nil, c.observer.WrapError(what, err)
	}
	alone := []plugin.Collective{plugin.Send, plugin.Recv}
	if c.device != nil {
		if err := c.device.probe(ctx, id); err != nil {
			return nil, c.observer.WrapError(what, err)
		}
		alone = c.device.alone()
	}
	if err := c.group.Agree(ctx, "prepare their plans ("+label+")", c.plans.PrepareAlone(ctx, alone...)); err != nil {
		return nil, c.observer.WrapError(what, err)
	}
	if err := c.plans.CompareChoices(ctx, "compare their choices ("+label+")"); err != nil {
		return nil, c.observer.WrapError(what, err)
	}
	c.begin(ctx)
	return c, nil
}

var failAgreed = failpoint.New("communicator.agreed",
	"when the ranks have agreed on a new communicator, before it is returned")

// begin starts a communicator once its ranks have agreed that it is there.
// Nothing of it may fail: the others have the communicator then, and this rank would not.
func (c *Communicator) begin(ctx context.Context) {
	failAgreed.Hit()
	c.engines = c.newEngines()
	if c.device != nil {
		c.device.start()
	}
	c.inform(ctx)
}

// introduce tells the ranks about this one, and learns about them. what names the call in errors. It returns the
// communicator's number.
func (c *Communicator) introduce(ctx context.Context, what string) (uint64, error) {
	names := make([]string, len(c.loaded))
	for i, l := range c.loaded {
		names[i] = l.Info.Name + " " + l.Info.Version
	}
	ranks := survey.Survey{Observer: &c.observer, Group: c.group, Call: what, Memory: c.job.memory,
		ShareGPU: c.job.options.ShareGPU()}
	found, err := ranks.Introduce(ctx, survey.Introduction{
		ID:    uint64(os.Getpid())<<32 | communicatorCount.Add(1)&0xFFFFFFFF,
		Place: c.job.place.Encode(), Transports: strings.Join(names, ", "), Choice: c.job.table.Override().Digest(),
		Costs: c.job.table.Digest(), Memory: c.job.memory.String(), MaxSMs: c.job.maxSMs,
	}, c.job.options.PeerRead())
	if err != nil {
		return 0, err
	}
	if err := c.job.takeCosts(ctx, &ranks, found); err != nil {
		return 0, err
	}
	c.maxSMs, c.observer.Topology = found.MaxSMs, found.Topology
	c.engine.SetOversubscribed(found.Topology.Oversubscribed(c.rank))
	if spins := c.job.options.Spin(); spins >= 0 {
		c.engine.SetPolicy(executor.Policy{Spins: uint32(spins), Yields: 2000})
	}
	if c.plans.PeerRead, err = ranks.PeerRead(ctx, found); err != nil {
		return 0, err
	}
	if c.plans.PeerRead {
		for rank, place := range found.Topology.Places {
			if err := c.engine.SetPeerProcess(rank, place.PID); err != nil {
				return 0, c.observer.WrapError(what, err)
			}
		}
	}
	if c.job.gpu != nil {
		if err := ranks.Paths(ctx, c.job.gpu.driver); err != nil {
			return 0, err
		}
	}
	c.plans.NVLink, c.plans.Table = found.Topology.NVLink(), c.job.table.On(found.Topology.Class())
	return found.ID, nil
}
