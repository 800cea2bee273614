package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/host/internal/survey"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/plugin"
)

// attached is one transport's endpoint within a communicator.
type attached struct {
	plans.Transport
	loaded   *carrier.Loaded
	mappings []io.Closer      // every rank's regions, mapped here
	deferred *memory.Deferred // nil without regions of that role
}

// deferredRegions returns the regions of role deferred.
func (a *attached) deferredRegions() (list []plugin.Region) {
	for _, r := range a.Endpoint.Regions() {
		if r.Role == plugin.RegionRoleDeferred {
			list = append(list, r)
		}
	}
	return list
}

func (a *attached) deferredBytes() (total int64) {
	for _, r := range a.deferredRegions() {
		total += r.Bytes
	}
	return total
}

// attachedAt returns the endpoint whose regions begin at a place of the executor's table.
func (c *Communicator) attachedAt(base uint32) *attached {
	return c.attached[slices.IndexFunc(c.attached, func(a *attached) bool { return a.Base == base })]
}

func (a *attached) close() error {
	var err error
	for _, m := range a.mappings {
		err = errors.Join(err, m.Close())
	}
	a.mappings = nil
	return errors.Join(err, a.Transport.Close())
}

// open opens one endpoint of every transport. Optional ones that do not serve here are absent instead.
func (c *Communicator) open(ctx context.Context, id uint64) (absent map[string]error, err error) {
	ctx, cancel := plans.TransportTime(ctx)
	defer cancel()
	absent = map[string]error{}
	infos := make([]plugin.Info, 0, len(c.member.Loaded))
	for _, l := range c.member.Loaded {
		infos = append(infos, l.Info)
		if !slices.Contains(l.Info.Memory, c.job.Memory) || !survey.Serves(l.Info, c.world) {
			continue
		}
		if reason := c.outOfReach(l.Info); reason != "" {
			c.plans.Absent[l.Info.Name] = reason
			continue
		}
		endpoint, err := l.Transport.Open(ctx, plugin.OpenConfig{
			Communicator: id, Rank: c.rank, World: c.world, Memory: c.job.Memory, Device: c.job.Device,
			MaxSMs: c.maxSMs, Options: c.job.Options.Transport(l.Info.Name),
		})
		if err != nil {
			err = fmt.Errorf("opening transport %s: %w", l.Info.Name, err)
			if !c.job.Optional || plugin.CodeOf(err) != plugin.Unsupported {
				return nil, err
			}
			absent[l.Info.Name] = err
			continue
		}
		a := &attached{loaded: l, Transport: plans.Transport{Name: l.Info.Name, Features: l.Info.Features, Ask: l.Ask,
			Endpoint: endpoint, Base: uint32(len(c.attached) * plugin.MaxRegions)}}
		c.attached = append(c.attached, a)
		c.plans.Transports = append(c.plans.Transports, &a.Transport)
		regions := endpoint.Regions()
		if len(regions) > plugin.MaxRegions {
			return nil, plugin.Errorf(plugin.Protocol, "transport %s publishes %d regions, want at most %d", l.Info.Name,
				len(regions), plugin.MaxRegions)
		}
		for i := range regions {
			if regions[i].ID != uint32(i) || regions[i].Bytes < 0 {
				return nil, plugin.Errorf(plugin.Protocol, "transport %s: region %d has id %d and %d bytes", l.Info.Name, i,
					regions[i].ID, regions[i].Bytes)
			}
			if regions[i].Role == plugin.RegionRoleScratch && a.Scratch == nil {
				a.Scratch = &regions[i]
			}
		}
	}
	if len(c.attached) == 0 && len(absent) == 0 {
		if err := survey.WorldTooLarge(infos, c.job.Memory, c.world); err != nil {
			return nil, err
		}
		if hosts := len(c.observer.Topology.Hosts()); hosts > 1 {
			return nil, plugin.Errorf(plugin.Unsupported, "the ranks run on %d hosts and no transport reaches other hosts", hosts)
		}
		if len(c.plans.Absent) > 0 {
			return absent, nil // settle says why
		}
		return nil, plugin.Errorf(plugin.Unsupported, "no transport serves %s memory", c.job.Memory)
	}
	return absent, nil
}

// settle closes the endpoints of the transports that the ranks have agreed to do without.
func (c *Communicator) settle() error {
	var err error
	c.attached = slices.DeleteFunc(c.attached, func(a *attached) bool {
		out := c.plans.Absent[a.Name] != ""
		if out {
			err = errors.Join(err, a.close())
		}
		return out
	})
	if err != nil || len(c.attached) > 0 {
		return err
	}
	reasons := make([]string, 0, len(c.plans.Absent))
	for name, reason := range c.plans.Absent {
		reasons = append(reasons, name+": "+reason)
	}
	slices.Sort(reasons)
	return plugin.Errorf(plugin.Unsupported, "no transport serves %s memory: %s", c.job.Memory,
		strings.Join(reasons, "; "))
}

// outOfReach returns the reason why a transport cannot reach the communicator's ranks, or need not, or "". All ranks
// return the same.
func (c *Communicator) outOfReach(info plugin.Info) string {
	const engine = plugin.FeatureMultiHost | plugin.FeatureExchange
	switch hosts := len(c.observer.Topology.Hosts()); {
	case hosts > 1 && info.Features&plugin.FeatureMultiHost == 0:
		return "it reaches ranks of one host only"
	case hosts == 1 && c.job.Optional && c.job.Memory == plugin.MemoryKindHost && info.Features&engine == engine &&
		info.Features&plugin.FeatureMemory == 0:
		// It would cost every communicator its connections, and every first call a round of exchange.
		return "the ranks are on one host, whose memory they share; SHUNT_TRANSPORTS names it all the same"
	}
	if reason, found := c.observer.Topology.NoPeerAccess(); found && info.Features&plugin.FeaturePeerAccess != 0 {
		return reason
	}
	if a, b, g, shared := c.observer.Topology.SharedGPU(); shared && info.Features&plugin.FeatureOwnGpu != 0 {
		return fmt.Sprintf("ranks %d and %d share GPU %s", a, b, g.PCI)
	}
	return ""
}

// connect exchanges control pages and the endpoints' regions, and maps them.
func (c *Communicator) connect(ctx context.Context) error {
	if c.world > 1 {
		var err error
		if c.share, err = memory.NewShare(ctx, c.group); err != nil {
			return err
		}
	}
	notes := int64(0)
	if c.world > 1 {
		notes = executor.MessageBytes(c.world)
	}
	page, err := memory.NewControlPage(notes)
	if err == nil {
		defer func() { _ = page.CloseFD() }() // also when another rank has none; the mapping lives on
	}
	if err == nil {
		err = c.enterForeign()
	}
	if err = c.group.Agree(ctx, "make control pages ("+c.label+")", err); err != nil {
		return err
	}
	pages, err := c.mapAll(ctx, "share control pages ("+c.label+")", []plugin.Region{page.Region()}, nil,
		func(r plugin.Region, rank int) (io.Closer, error) {
			if !c.observer.Topology.SameHost(c.rank, rank) {
				return nil, nil // such a rank rings no doorbell here, and tells what it calls
			}
			return mapHost(r, func(m executor.Memory) error { return c.engine.SetControl(rank, m) })
		})
	c.control = append(c.control, pages...)
	if err != nil {
		return err
	}
	for i, a := range c.attached {
		tag := fmt.Sprintf("share memory regions (%s %d)", c.label, i)
		mappings, err := c.mapRegions(ctx, tag, a, a.Endpoint.Regions())
		a.mappings = mappings
		if err != nil {
			return err
		}
		if c.device != nil {
			isLocal := func(r plugin.Region) bool { return r.Role == plugin.RegionRoleLocal }
			if slices.ContainsFunc(a.Endpoint.Regions(), isLocal) {
				a.Enqueues.Store(true)
			}
			if err := c.device.exec.AddImages(a.Base, a.Endpoint.Images()); err != nil {
				return err
			}
			c.device.deferRegions(a, tag)
		}
	}
	if c.device == nil {
		return nil
	}
	pages, err = c.device.buffers.SharePages(ctx, c.group, c.exchangeHost)
	c.control = append(c.control, pages...)
	return err
}

// exchangeHost exchanges one region of host memory with all ranks, and passes each rank's mapping to enter.
func (c *Communicator) exchangeHost(ctx context.Context, tag string, mine plugin.Region,
	enter func(rank int, base unsafe.Pointer)) ([]io.Closer, error) {
	return c.mapAll(ctx, tag, []plugin.Region{mine}, nil, func(r plugin.Region, rank int) (io.Closer, error) {
		return mapHost(r, func(m executor.Memory) error {
			enter(rank, m.Base)
			return nil
		})
	})
}

// mapRegions maps the regions of role local, which are this rank's alone, exchanges the others with all ranks, maps
// those of this host's ranks and enters them in the executor's table.
func (c *Communicator) mapRegions(ctx context.Context, tag string, a *attached, regions []plugin.Region) ([]io.Closer,
	error) {
	of := func(m io.Closer, err error) (io.Closer, error) {
		if err != nil {
			return nil, fmt.Errorf("transport %s: %w", a.Name, err)
		}
		return m, nil
	}
	var shared []plugin.Region
	var mappings []io.Closer
	var failed error
	for _, r := range regions {
		if r.Role != plugin.RegionRoleLocal {
			shared = append(shared, r)
			continue
		}
		m, err := of(c.mapLocal(a.Base, r))
		if err != nil {
			failed = fmt.Errorf("mapping region %d of role local: %w", r.ID, err)
			continue
		}
		mappings = append(mappings, m)
	}
	mapped, err := c.mapAll(ctx, tag, shared, failed, func(r plugin.Region, rank int) (io.Closer, error) {
		if !c.observer.Topology.SameHost(c.rank, rank) {
			return nil, nil
		}
		if r.Memory == plugin.MemoryKindCuda && c.device != nil {
			return of(c.device.mapRegion(a.Base, r, rank))
		}
		return of(mapHost(r, func(m executor.Memory) error { return c.engine.SetRegion(a.Base, r.ID, rank, m) }))
	})
	return append(mappings, mapped...), err
}

// mapLocal maps a region of this rank's alone, for its GPU too where it has one.
func (c *Communicator) mapLocal(base uint32, r plugin.Region) (io.Closer, error) {
	if c.device != nil {
		return c.device.mapLocal(base, r)
	}
	return mapHost(r, func(m executor.Memory) error { return c.engine.SetRegion(base, r.ID, c.rank, m) })
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

// mapAll is memory.MapAll among the ranks of the communicator.
func (c *Communicator) mapAll(ctx context.Context, tag string, mine []plugin.Region, failed error,
	enter func(plugin.Region, int) (io.Closer, error)) ([]io.Closer, error) {
	return memory.MapAll(ctx, c.group, c.share, tag, mine, failed, enter)
}
