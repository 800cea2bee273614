package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/host/internal/survey"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// attached is one transport's endpoint within a communicator.
type attached struct {
	plans.Transport
	loaded   *Loaded
	mappings []io.Closer // every rank's regions, mapped here
}

func (a *attached) close() error {
	var err error
	for _, m := range a.mappings {
		err = errors.Join(err, m.Close())
	}
	a.mappings = nil
	return errors.Join(err, a.Transport.Close())
}

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
	for _, w := range warnings {
		logger.Warn(w.String())
	}
	for _, problem := range failpoint.Problems() {
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
		members: map[*Communicator]bool{},
	}
	if j.table, err = newTable(o, options); err != nil {
		return nil, err
	}
	transports := specs(o, options, logger)
	if err := worldTooLarge(builtinInfos(transports), o.Memory, config.World); err != nil { // before all those ranks meet
		return nil, fmt.Errorf("init: %w", err)
	}
	joinCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if j.session, err = bootstrap.Join(joinCtx, config); err != nil {
		return nil, err
	}
	j.ctx, j.cancel = context.WithCancelCause(context.Background())
	j.place.Rank = config.Rank
	loadCtx, cancelLoad := plans.TransportTime(joinCtx)
	defer cancelLoad()
	j.loaded, err = loadAll(loadCtx, transports, logger)
	if err == nil && o.Memory == plugin.MemoryKindCuda {
		if j.gpu, err = openGPU(o, config.Rank, os.Getenv); err == nil {
			j.place.GPUs = []topology.GPU{j.gpu.place()}
		}
	}
	if err = j.session.All().Agree(joinCtx, "load", err); err != nil {
		return nil, errors.Join(err, j.abandon())
	}
	names := make([]string, len(j.loaded))
	for i, l := range j.loaded {
		names[i] = l.Info.Name
	}
	for _, w := range options.Unclaimed(names) {
		logger.Warn(w.String())
	}
	j.start()
	ranks := make([]int, j.session.World())
	for i := range ranks {
		ranks[i] = i
	}
	return newCommunicator(joinCtx, j, "world", ranks)
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

// specs is the list of transports to load.
func specs(o Options, options *option.Options, logger *slog.Logger) []string {
	if len(o.Transports) > 0 {
		return o.Transports
	}
	if list := options.Transports(); len(list) > 0 {
		return list
	}
	var list []string
	for _, name := range Registered() {
		list = append(list, string(Builtin)+":"+name)
	}
	if dir := options.PluginDir(); dir != "" {
		found, err := Discover(dir)
		if err != nil {
			logger.Warn("no plugins found", "reason", err)
		}
		for _, spec := range found {
			list = append(list, spec.String())
		}
	}
	return list
}

// newTable reads what the environment and, before it, the options in code say
// about the choice of algorithms.
func newTable(o Options, options *option.Options) (*selector.Table, error) {
	algo := o.Algo
	if algo == "" {
		algo = options.Algo()
	}
	override, err := selector.Parse(algo)
	if err != nil {
		return nil, err
	}
	settings := []selector.Setting{selector.WithOverride(override)}
	if path := options.TuningFile(); path != "" {
		tuning, err := selector.ReadTuning(path)
		if err != nil {
			return nil, err
		}
		settings = append(settings, selector.WithTuning(tuning))
	}
	return selector.New(settings...), nil
}

// abandon ends a job that no communicator was made of.
func (j *job) abandon() error {
	j.cancel(plugin.Errorf(plugin.Closed, "the job has ended"))
	err := j.session.Close()
	j.watchers.Wait()
	for _, l := range j.loaded {
		err = errors.Join(err, l.Close())
	}
	return errors.Join(err, j.gpu.close())
}

var communicatorCount atomic.Uint64

// newCommunicator makes the communicator of the given ranks of the job, each
// of which calls this with the same label. On error everything made so far is
// released.
func newCommunicator(ctx context.Context, j *job, label string, ranks []int) (_ *Communicator, err error) {
	rank := slices.Index(ranks, j.session.Rank())
	c := &Communicator{
		rank: rank, world: len(ranks), label: label, ranks: ranks,
		job: j, logger: j.logger, windows: map[uint32]*Window{},
		checker: call.Checker{Rank: rank, World: len(ranks), OnDevice: j.gpu != nil},
		observer: diagnosis.Observer{Rank: rank, World: len(ranks), Label: label, OnDevice: j.gpu != nil, Timeout: j.timeout,
			Logger: j.logger},
	}
	c.symmetric = buffers.NewSymmetric(&c.observer)
	c.plans = plans.Planner{Observer: &c.observer, Table: j.table, Memory: j.memory, Stall: j.options.Stall(),
		Fail: c.fail}
	c.observer.Failure.SetUp(j.options.RecordsDir())
	c.scratch.arrays = make([]int64, 4*c.world)
	j.hold()
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.group, err = j.session.Group(label, ranks); err != nil {
		return nil, err
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
	id, err := c.introduce(ctx)
	if err != nil {
		return nil, err
	}
	if err = failed; err == nil {
		err = c.open(ctx, id)
	}
	if err == nil && c.device == nil {
		err = c.engine.SetDelays(j.delays)
	}
	if err := c.group.Agree(ctx, "open their transports ("+label+")", err); err != nil {
		return nil, c.observer.WrapError("init", err)
	}
	if err := c.plans.ExchangeBytes(ctx); err != nil {
		return nil, c.observer.WrapError("init", err)
	}
	if err := c.connect(ctx); err != nil {
		return nil, c.observer.WrapError("init", err)
	}
	alone := []plugin.Collective{plugin.Send, plugin.Recv}
	if c.device != nil {
		if err := c.device.probe(ctx, id); err != nil {
			return nil, c.observer.WrapError("init", err)
		}
		alone = c.device.alone()
	}
	if err := c.group.Agree(ctx, "prepare their plans ("+label+")", c.plans.PrepareAlone(ctx, alone...)); err != nil {
		return nil, c.observer.WrapError("init", err)
	}
	if err := c.plans.CompareChoices(ctx, "compare their choices ("+label+")"); err != nil {
		return nil, c.observer.WrapError("init", err)
	}
	c.begin(ctx)
	return c, nil
}

var failAgreed = failpoint.New("communicator.agreed",
	"when the ranks have agreed on a new communicator, before it is returned")

// begin is what a communicator does once its ranks have agreed that it is there.
// Nothing of it may fail: the others have the communicator then, and this rank would not.
func (c *Communicator) begin(ctx context.Context) {
	_ = failAgreed.Hit() // late, stopped or dead; an error has no place here
	if c.device != nil {
		c.device.start()
		return
	}
	c.inform(ctx)
}

// introduce tells the ranks about this one, and learns who they are. It returns the communicator's number.
func (c *Communicator) introduce(ctx context.Context) (uint64, error) {
	names := make([]string, len(c.loaded))
	for i, l := range c.loaded {
		names[i] = l.Info.Name + " " + l.Info.Version
	}
	ranks := survey.Survey{Observer: &c.observer, Group: c.group, Memory: c.job.memory, ShareGPU: c.job.options.ShareGPU()}
	found, err := ranks.Introduce(ctx, survey.Introduction{
		ID:    uint64(os.Getpid())<<32 | communicatorCount.Add(1)&0xFFFFFFFF,
		Place: c.job.place.Encode(), Transports: strings.Join(names, ", "), Choice: c.job.table.Digest(),
		Memory: c.job.memory.String(), MaxSMs: c.job.maxSMs,
	}, c.job.options.PeerRead())
	if err != nil {
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
				return 0, c.observer.WrapError("init", err)
			}
		}
	}
	c.plans.NVLink, err = ranks.NVLink(ctx)
	return found.ID, err
}

// open opens one endpoint of every transport.
func (c *Communicator) open(ctx context.Context, id uint64) error {
	ctx, cancel := plans.TransportTime(ctx)
	defer cancel()
	infos := make([]plugin.Info, 0, len(c.loaded))
	for _, l := range c.loaded {
		infos = append(infos, l.Info)
		if !slices.Contains(l.Info.Memory, c.job.memory) || !serves(l.Info, c.world) {
			continue
		}
		if len(c.observer.Topology.Hosts()) > 1 && l.Info.Features&plugin.FeatureMultiHost == 0 {
			continue // Supports says why when an operation finds no transport
		}
		endpoint, err := l.Transport.Open(ctx, plugin.OpenConfig{
			Communicator: id, Rank: c.rank, World: c.world, Memory: c.job.memory, Device: c.job.ordinal(),
			MaxSMs: c.maxSMs, Options: c.job.options.Transport(l.Info.Name),
		})
		if err != nil {
			return fmt.Errorf("opening transport %s: %w", l.Info.Name, err)
		}
		a := &attached{loaded: l, Transport: plans.Transport{Name: l.Info.Name, Features: l.Info.Features, Ask: l.Ask,
			Endpoint: endpoint, Base: uint32(len(c.attached) * plugin.MaxRegions)}}
		c.attached = append(c.attached, a)
		c.plans.Transports = append(c.plans.Transports, &a.Transport)
		regions := endpoint.Regions()
		if len(regions) > plugin.MaxRegions {
			return plugin.Errorf(plugin.Protocol, "transport %s publishes %d regions, want at most %d", l.Info.Name,
				len(regions), plugin.MaxRegions)
		}
		for i := range regions {
			if regions[i].ID != uint32(i) || regions[i].Bytes < 0 {
				return plugin.Errorf(plugin.Protocol, "transport %s: region %d has id %d and %d bytes", l.Info.Name, i,
					regions[i].ID, regions[i].Bytes)
			}
			if regions[i].Role == plugin.RegionRoleScratch && a.Scratch == nil {
				a.Scratch = &regions[i]
			}
		}
	}
	c.opened.Store(true)
	if len(c.attached) == 0 {
		if err := worldTooLarge(infos, c.job.memory, c.world); err != nil {
			return err
		}
		if hosts := len(c.observer.Topology.Hosts()); hosts > 1 {
			return plugin.Errorf(plugin.Unsupported, "the ranks run on %d hosts and no transport reaches other hosts", hosts)
		}
		return plugin.Errorf(plugin.Unsupported, "no transport serves %s memory", c.job.memory)
	}
	return nil
}

// connect exchanges control pages and the endpoints' regions, and maps them.
func (c *Communicator) connect(ctx context.Context) error {
	if c.world > 1 {
		var err error
		if c.share, err = memory.NewShare(c.group); err != nil {
			return err
		}
	}
	notes := int64(0)
	if c.device == nil && c.world > 1 { // kernels keep none
		notes = executor.MessageBytes(c.world)
	}
	page, err := memory.NewControlPage(notes)
	if err == nil {
		defer func() { _ = page.CloseFD() }() // also when another rank has none; the mapping lives on
	}
	if err = c.group.Agree(ctx, "make control pages ("+c.label+")", err); err != nil {
		return err
	}
	c.control, err = c.exchange(ctx, "share control pages ("+c.label+")", []plugin.Region{page.Region()}, nil,
		func(r plugin.Region, rank int) (io.Closer, error) {
			if !c.observer.Topology.SameHost(c.rank, rank) {
				return nil, nil // such a rank rings no doorbell here, and what it calls is not seen
			}
			return mapHost(r, func(m executor.Memory) error { return c.engine.SetControl(rank, m) })
		})
	if err != nil {
		return err
	}
	for i, a := range c.attached {
		tag := fmt.Sprintf("share memory regions (%s %d)", c.label, i)
		mappings, err := c.mapRegions(ctx, tag, a.Base, a.Endpoint.Regions())
		a.mappings = mappings
		if err != nil {
			return err
		}
		if c.device != nil {
			if err := c.device.exec.AddImages(a.Base, a.Endpoint.Images()); err != nil {
				return err
			}
		}
	}
	if c.device == nil {
		return nil
	}
	pages, err := c.device.buffers.SharePages(ctx, c.group, c.exchangeHost)
	c.control = append(c.control, pages...)
	return err
}

// exchangeHost is exchange for one region of host memory.
func (c *Communicator) exchangeHost(ctx context.Context, tag string, mine plugin.Region,
	enter func(rank int, base unsafe.Pointer)) ([]io.Closer, error) {
	return c.exchange(ctx, tag, []plugin.Region{mine}, nil, func(r plugin.Region, rank int) (io.Closer, error) {
		return mapHost(r, func(m executor.Memory) error {
			enter(rank, m.Base)
			return nil
		})
	})
}

// mapRegions maps the regions of role local, which are this rank's alone, exchanges the others with all ranks, maps
// those of this host's ranks and enters them in the executor's table.
func (c *Communicator) mapRegions(ctx context.Context, tag string, base uint32, regions []plugin.Region) ([]io.Closer,
	error) {
	var shared []plugin.Region
	var mappings []io.Closer
	var failed error
	for _, r := range regions {
		if r.Role != plugin.RegionRoleLocal {
			shared = append(shared, r)
			continue
		}
		m, err := mapHost(r, func(m executor.Memory) error { return c.engine.SetRegion(base, r.ID, c.rank, m) })
		if err != nil {
			failed = fmt.Errorf("mapping region %d of role local: %w", r.ID, err)
			continue
		}
		mappings = append(mappings, m)
	}
	mapped, err := c.exchange(ctx, tag, shared, failed, func(r plugin.Region, rank int) (io.Closer, error) {
		if !c.observer.Topology.SameHost(c.rank, rank) {
			return nil, nil
		}
		if r.Memory == plugin.MemoryKindCuda && c.device != nil {
			return c.device.mapRegion(base, r, rank)
		}
		return mapHost(r, func(m executor.Memory) error { return c.engine.SetRegion(base, r.ID, rank, m) })
	})
	return append(mappings, mapped...), err
}

// mapHost maps a region of host memory and enters it where it belongs.
func mapHost(r plugin.Region, enter func(executor.Memory) error) (io.Closer, error) {
	m, err := memory.MapHandle(r.Handle)
	if err != nil {
		return nil, err
	}
	if m.Bytes() < r.Bytes {
		err = plugin.Errorf(plugin.Protocol, "the mapping has %d bytes, want %d", m.Bytes(), r.Bytes)
	} else {
		err = enter(executor.Memory{Base: m.Base(), Bytes: r.Bytes})
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// exchange hands this rank's regions to all ranks, maps everyone's, region by
// region in rank order, and agrees that all could, and that nothing failed before on
// any rank. enter maps one; nil means that the region needs no mapping here. The mappings
// are returned also on error, for the caller to close.
func (c *Communicator) exchange(ctx context.Context, tag string, mine []plugin.Region, failed error,
	enter func(plugin.Region, int) (io.Closer, error)) ([]io.Closer, error) {
	all := [][]plugin.Region{mine}
	if c.share != nil {
		var err error
		if all, err = c.share.Exchange(ctx, tag, mine); err != nil {
			return nil, err
		}
		defer memory.CloseAll(all)
	}
	var mappings []io.Closer
	mapAll := func() error {
		if failed != nil {
			return failed
		}
		for rank := range all {
			if len(all[rank]) != len(mine) {
				return plugin.Errorf(plugin.Mismatch, "rank %d shares %d regions, rank %d %d", c.rank, len(mine), rank,
					len(all[rank]))
			}
		}
		for i := range mine {
			for rank := range all {
				r := all[rank][i]
				if r.ID != mine[i].ID || r.Bytes != mine[i].Bytes || r.Role != mine[i].Role || r.Memory != mine[i].Memory {
					return plugin.Errorf(plugin.Mismatch, "region %d: rank %d has id %d, role %s and %d bytes of %s memory, rank %d id %d, role %s and %d bytes of %s memory",
						i, c.rank, mine[i].ID, mine[i].Role, mine[i].Bytes, mine[i].Memory, rank, r.ID, r.Role, r.Bytes, r.Memory)
				}
				m, err := enter(r, rank)
				if err != nil {
					return fmt.Errorf("mapping region %d of rank %d: %w", r.ID, rank, err)
				}
				if m != nil {
					mappings = append(mappings, m)
				}
			}
		}
		return nil
	}
	err := c.group.Agree(ctx, tag+" mapped", mapAll()) // fills mappings; the order of operands of a return is not fixed
	return mappings, err
}
