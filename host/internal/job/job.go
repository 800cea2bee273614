package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/lockorder"
	"github.com/shunt-ccl/shunt/host/internal/logs"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/host/internal/survey"
	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/environment"
)

// Job lives as long as its last communicator.
type Job struct {
	Config                   // complete
	Context  context.Context // ends with the job
	Session  *bootstrap.Session
	Place    topology.Place
	Options  *option.Options
	GPU      *GPU // nil for host memory
	Delays   *executor.Delays
	Optional bool // the transports are those that are there, not those that the user has named
	Checks   bool // SHUNT_CHECK: check the memory of calls, and compare every collective across ranks
	Table    *selector.Table

	meeting   bootstrap.Config
	cancel    context.CancelCauseFunc
	unchecked func()        // ends the check of the order of locks; nil: there is none
	records   *logs.Handler // of the logger

	reviving sync.Mutex // guards loaded
	loaded   []*carrier.Loaded
	mu       sync.Mutex
	members  map[*Member]bool // those that hold the job; true: it watches them
	over     bool             // the last of them was released
	watchers sync.WaitGroup
}

// New reads the options of a job, in code and in the environment.
func New(c Config) (*Job, error) {
	options, warnings := option.Load(environment.All())
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: options.LogLevel()}))
	}
	records := logs.New(c.Logger.Handler())
	c.Logger = slog.New(records)
	for _, w := range warnings {
		c.Logger.Warn(w.String())
	}
	if problem := failpoint.Problem(); problem != nil {
		c.Logger.Warn("SHUNT_FAILPOINTS", "problem", problem)
	}
	if err := c.complete(options); err != nil {
		return nil, err
	}
	delays, err := executor.ParseDelays(options.Delays())
	if err != nil {
		return nil, plugin.Errorf(plugin.InvalidArgument, "init: SHUNT_DELAYS: %w", err)
	}
	meeting, err := c.rendezvous(options)
	if err != nil {
		return nil, err
	}
	return &Job{Config: c, Place: topology.Local(), Options: options, Delays: delays, Checks: options.Check(),
		meeting: meeting, records: records, members: map[*Member]bool{}}, nil
}

// Join meets the other ranks and loads the transports. It is collective. A failure on one rank is every rank's error.
func (j *Job) Join(ctx context.Context) (err error) {
	var refused error // agreed on below
	j.Table, refused = j.newTable(j.Options, j.meeting.Rank)
	transports, named := j.specs(j.Options)
	j.Optional = !named
	// Before all those ranks meet.
	if err := survey.WorldTooLarge(carrier.BuiltinInfos(transports), j.Memory, j.meeting.World); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if j.Session, err = bootstrap.Join(ctx, j.meeting); err != nil {
		return errors.Join(refused, err)
	}
	j.Context, j.cancel = context.WithCancelCause(context.Background())
	j.Place.Rank = j.meeting.Rank
	if refused == nil {
		refused = j.load(ctx, transports)
	}
	if err := j.Session.All().Agree(ctx, "load", refused); err != nil {
		return errors.Join(err, j.end())
	}
	j.start()
	return nil
}

// load loads the transports, and opens the GPU.
func (j *Job) load(ctx context.Context, transports []string) (err error) {
	ctx, cancel := plans.TransportTime(ctx)
	defer cancel()
	j.loaded, err = carrier.LoadAll(ctx, transports, j.Options.PluginStart(), j.Logger)
	if err != nil || j.Memory != plugin.MemoryKindCuda {
		return err
	}
	if j.GPU, err = j.openGPU(j.meeting.Rank); err == nil {
		j.Place.GPUs = []topology.GPU{j.GPU.place()}
	}
	return err
}

// start begins the watchers, which run until the job's context ends.
func (j *Job) start() {
	names := carrier.Registered() // their options are known, whether they are used here or not
	for _, l := range j.loaded {
		names = append(names, l.Info.Name)
	}
	for _, w := range j.Options.Unclaimed(names) {
		j.Logger.Warn(w.String())
	}
	if j.Checks {
		j.unchecked = lockorder.Check(nil)
	}
	j.watchers.Go(j.watchPeers)
	j.watchers.Go(j.watchStalls)
	for _, l := range j.loaded {
		j.watchPlugin(l)
	}
}

// Revive starts the plugins again whose process has died, so that a communicator made after that works, and returns all
// transports. Older communicators keep what they had. The caller holds the job, whose end closes what is started here.
func (j *Job) Revive(ctx context.Context) ([]*carrier.Loaded, error) {
	j.reviving.Lock()
	defer j.reviving.Unlock()
	for i, l := range j.loaded {
		if l.Err() == nil {
			continue
		}
		again, err := l.Again(ctx)
		if err != nil {
			return slices.Clone(j.loaded), err
		}
		j.loaded[i] = again
		j.watchPlugin(again)
		_ = l.Close() // it is dead: this collects what is left of it
	}
	return slices.Clone(j.loaded), nil
}

// Hold keeps the job alive until m's release. It fails once the job is over, as for a communicator that is begun in one
// thread while another closes the last one.
func (j *Job) Hold(m *Member) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.over {
		return plugin.Errorf(plugin.Closed, "the last communicator of the job was closed meanwhile")
	}
	j.members[m] = false
	return nil
}

// Release gives up m's hold; the last one's ends the job.
func (j *Job) Release(m *Member) error {
	j.mu.Lock()
	delete(j.members, m)
	j.over = len(j.members) == 0
	last := j.over
	j.mu.Unlock()
	if !last {
		return nil
	}
	return j.end()
}

func (j *Job) end() error {
	j.cancel(plugin.Errorf(plugin.Closed, "the job has ended"))
	err := j.Session.Close()
	j.watchers.Wait()
	for _, l := range j.loaded {
		err = errors.Join(err, l.Close())
	}
	if j.unchecked != nil {
		j.unchecked()
	}
	err = errors.Join(err, j.GPU.close())
	j.records.Flush()
	return err
}
