package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"unsafe"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/host/memory"
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
