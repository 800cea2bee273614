package endpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/host/internal/survey"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/plugin"
)

// Set is the endpoints of one communicator.
type Set struct {
	*diagnosis.Observer
	Plans    *plans.Planner // Open fills its Transports and Absent
	Group    *bootstrap.Group
	Optional bool          // no rank's user has named transports: they are those that are there; alike on all ranks
	GPU      *GPU          // nil for host memory
	Lookout  time.Duration // how often the work on the GPU is looked at
	// Fail makes the communicator fail; with spread the other ranks learn it.
	Fail func(reason *plugin.Error, spread bool)

	List      []*Endpoint       // in order of preference
	Buffers   *buffers.Registry // of users' buffers on the GPU; nil without a transport that has one
	Engines   *buffers.Engines  // nil: no transport registers memory
	Symmetric buffers.Symmetric // the communicator's turn guards it

	// Open windows, by their place in the executor's table. All places are behind the endpoints' regions. On the first
	// MaxWindows the ranks agree; behind them are those of windows of the caller's memory.
	windows        map[uint32]*Window
	placeOfWindows uint32
	notFreed       map[uint32]bool // of the first, those whose memory an endpoint still has

	share   *memory.Share               // nil in a world of one
	control []io.Closer                 // every rank's control page
	abroad  atomic.Bool                 // some ranks are on other hosts; Tell fills their control pages, which are ours
	told    atomic.Pointer[[]*Endpoint] // whom Abort tells
	telling telling
	watch   watch
}

// Endpoint is one transport's endpoint within a communicator.
type Endpoint struct {
	plans.Transport
	Loaded   *carrier.Loaded
	mappings Mappings                // every rank's regions, mapped here
	first    []*memory.DeviceMapping // region 0 of each rank, where the GPU has a mapping of its own
	later    []plugin.Region         // those of role deferred
	deferred *memory.Deferred        // what makes them; nil without such regions
	told     sync.Once               // that the communicator has failed
}

// Open opens one endpoint of every transport that serves the world and reaches its ranks. Optional ones that do not
// serve here are absent instead. config holds what all endpoints get, options what one transport gets besides. The
// caller agrees with the other ranks afterwards.
func (s *Set) Open(ctx context.Context, loaded []*carrier.Loaded, config plugin.OpenConfig,
	options func(transport string) map[string]string) (absent map[string]error, err error) {
	ctx, cancel := plans.TransportTime(ctx)
	defer cancel()
	defer s.listen()
	absent = map[string]error{}
	s.windows, s.placeOfWindows = map[uint32]*Window{}, uint32(len(loaded)*plugin.MaxRegions)
	s.notFreed = map[uint32]bool{}
	infos := make([]plugin.Info, 0, len(loaded))
	for i, l := range loaded {
		infos = append(infos, l.Info)
		if !slices.Contains(l.Info.Memory, s.Plans.Memory) || !survey.Serves(l.Info, s.World) {
			continue
		}
		if reason := s.outOfReach(l.Info); reason != "" {
			s.Plans.Absent[l.Info.Name] = reason
			continue
		}
		config.Options = options(l.Info.Name)
		endpoint, err := l.Transport.Open(ctx, config)
		if err != nil {
			err = fmt.Errorf("opening transport %s: %w", l.Info.Name, err)
			if !s.Optional || plugin.CodeOf(err) != plugin.Unsupported {
				return nil, err
			}
			absent[l.Info.Name] = err
			continue
		}
		// By its place among all that are loaded, which is the same on all ranks, whatever some cannot open.
		if err := s.add(l, endpoint, uint32(i*plugin.MaxRegions)); err != nil {
			return nil, err
		}
	}
	if len(s.List) > 0 || len(absent) > 0 {
		return absent, nil
	}
	if err := survey.WorldTooLarge(infos, s.Plans.Memory, s.World); err != nil {
		return nil, err
	}
	if hosts := len(s.Topology.Hosts()); hosts > 1 {
		return nil, plugin.Errorf(plugin.Unsupported, "the ranks run on %d hosts and no transport reaches other hosts%s", hosts,
			s.hosts())
	}
	if len(s.Plans.Absent) > 0 {
		return absent, nil // Connect says why
	}
	serve := make([]string, len(infos))
	for i, info := range infos {
		serve[i] = fmt.Sprintf("%s serves %s", info.Name, strings.Trim(fmt.Sprint(info.Memory), "[]"))
	}
	return nil, plugin.Errorf(plugin.Unsupported, "no transport serves %s memory: %s", s.Plans.Memory,
		strings.Join(serve, ", "))
}

// add takes an endpoint that was opened, which Close closes from now on.
func (s *Set) add(l *carrier.Loaded, endpoint plugin.Endpoint, base uint32) error {
	e := &Endpoint{Loaded: l, first: make([]*memory.DeviceMapping, s.World), Transport: plans.Transport{Name: l.Info.Name,
		Features: l.Info.Features, Ask: l.Ask, Endpoint: endpoint, Base: base}}
	s.List = append(s.List, e)
	s.Plans.Transports = append(s.Plans.Transports, &e.Transport)
	regions := endpoint.Regions()
	if len(regions) > plugin.MaxRegions {
		return plugin.Errorf(plugin.Protocol, "transport %s publishes %d regions, want at most %d", e.Name, len(regions),
			plugin.MaxRegions)
	}
	for i, r := range regions {
		if r.ID != uint32(i) || r.Bytes < 0 {
			return plugin.Errorf(plugin.Protocol, "transport %s: region %d has id %d and %d bytes", e.Name, i, r.ID, r.Bytes)
		}
		if r.Handle.Kind == plugin.HandleKindMemfd && r.Handle.FD < 0 {
			return plugin.Errorf(plugin.Protocol, "transport %s: region %d has a memfd handle without a descriptor", e.Name, i)
		}
		if r.Role == plugin.RegionRoleScratch && e.Scratch == nil {
			e.Scratch = &regions[i]
		}
		if r.Role == plugin.RegionRoleDeferred {
			e.later = append(e.later, r)
		}
	}
	if s.GPU != nil {
		if err := s.GPU.Exec.AddImages(e.Base, endpoint.Images()); err != nil {
			return fmt.Errorf("transport %s: %w", e.Name, err)
		}
	}
	return nil
}

// closeAbsent closes the endpoints of the transports that the ranks have agreed to do without. The error is this rank's
// alone.
func (s *Set) closeAbsent() error {
	var left []*Endpoint
	s.List = slices.DeleteFunc(s.List, func(e *Endpoint) bool {
		absent := s.Plans.Absent[e.Name] != ""
		if absent {
			left = append(left, e)
		}
		return absent
	})
	s.listen()
	var err error
	for _, e := range left {
		if failed := e.close(); failed != nil {
			err = errors.Join(err, fmt.Errorf("closing transport %s: %w", e.Name, failed))
		}
	}
	return err
}

// listen makes the endpoints that are open those whom Abort tells, now if the communicator has failed.
func (s *Set) listen() {
	list := slices.Clone(s.List)
	s.told.Store(&list)
	if reason := s.Failure.Reason(); reason != nil {
		s.tell(reason)
	}
}

// noneServes says why every transport is left out. All ranks return the same.
func (s *Set) noneServes() error {
	reasons := make([]string, 0, len(s.Plans.Absent))
	for _, name := range slices.Sorted(maps.Keys(s.Plans.Absent)) {
		reasons = append(reasons, name+": "+s.Plans.Absent[name])
	}
	return plugin.Errorf(plugin.Unsupported, "no transport serves %s memory: %s%s", s.Plans.Memory,
		strings.Join(reasons, "; "), s.hosts())
}

// Connected reports whether peers may see this rank's control page.
func (s *Set) Connected() bool { return s.control != nil }

// forWindows returns the first endpoint that allocates buffers which its own one-sided plans, or the generic ones, can
// reach.
func (s *Set) forWindows(ctx context.Context) (*Endpoint, error) {
	if hosts := len(s.Topology.Hosts()); hosts > 1 {
		return nil, plugin.Errorf(plugin.Unsupported, "windows reach the ranks of one host, and these run on %d", hosts)
	}
	ctx, cancel := plans.TransportTime(ctx)
	defer cancel()
	for _, e := range s.List {
		if e.Features&plugin.FeatureBuffers == 0 {
			continue
		}
		if e.Scratch != nil {
			return e, nil
		}
		put := s.Plans.Request(call.SignatureOf(plugin.Put, plugin.Uint8, plugin.OpSum))
		support, err := e.Supports(ctx, plans.WithoutRank(put))
		if err != nil {
			return nil, err
		}
		if len(support.Algorithms) > 0 {
			return e, nil
		}
	}
	return nil, plugin.Errorf(plugin.Unsupported, "no transport allocates buffers")
}

// closeShare ends the giving of descriptors to peers.
func (s *Set) closeShare() (err error) {
	if s.share != nil {
		err = s.share.Close()
	}
	for _, e := range s.List {
		err = errors.Join(err, e.deferred.Close())
	}
	return err
}

// Close releases everything, the GPU included, after the last operation and the last window. Endpoints whose code or
// memory GPUs use go when nothing of theirs runs any more, and so does what the host's copies use: destroying it before
// may wait for kernels, and they for what a peer calls next.
func (s *Set) Close() error {
	errs := []error{s.Buffers.Close()}
	if s.GPU == nil {
		errs = append(errs, s.closeShare())
	} else { // peers whose data an operation waits for may have yet to ask where it goes
		errs = append(errs, s.GPU.Exec.Later(s.closeShare))
	}
	for _, m := range s.control {
		errs = append(errs, m.Close())
	}
	errs = append(errs, s.Engines.Close())
	for _, e := range s.List {
		if e.Enqueues.Load() {
			errs = append(errs, s.GPU.Exec.Later(func() error { return s.closeEngine(e) }))
			continue
		}
		s.Engines.End(e.Base)
		errs = append(errs, s.end(e))
	}
	if s.GPU != nil {
		errs = append(errs, s.GPU.Exec.Later(s.GPU.copies.Close), s.GPU.Exec.Close())
	}
	if s.watch.outlast != nil {
		errs = append(errs, s.watch.outlast())
	}
	return errors.Join(errs...)
}

// closeEngine closes an endpoint whose code GPUs have called, when nothing of it runs any more.
func (s *Set) closeEngine(e *Endpoint) error {
	s.GPU.Exec.AwaitEngines()
	if base, stuck := s.GPU.Exec.EngineStuck(); stuck && base == e.Base {
		e.Lose("a native function of " + e.Name)
	} else {
		s.Engines.End(e.Base)
	}
	return s.end(e)
}

// end closes an endpoint. Where its plugin has died with a communicator that has failed, nothing is left to be closed,
// and the program has an error already.
func (s *Set) end(e *Endpoint) error {
	err := e.close()
	if err != nil {
		err = fmt.Errorf("closing transport %s on rank %d: %w", e.Name, s.Rank, err)
	}
	if s.Failure.Reason() != nil && plugin.CodeOf(err) == plugin.PluginDied {
		s.Logger.Info("endpoint not closed", "communicator", s.Label, "rank", s.Rank, "reason", err)
		return nil
	}
	return err
}

func (e *Endpoint) close() error {
	err := e.mappings.Close()
	e.mappings = nil
	return errors.Join(err, e.Transport.Close())
}
