package endpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/plugin"
)

// Connect closes the endpoints that the ranks have agreed to do without, exchanges control pages and the other
// endpoints' regions, maps them, and finds out whether GPUs reach each other's memory. It is collective. id is the
// communicator's number.
func (s *Set) Connect(ctx context.Context, id uint64) error {
	failed := s.closeAbsent()
	if len(s.List) == 0 {
		return errors.Join(s.noneServes(), failed)
	}
	s.opened.Store(true)
	if s.World > 1 {
		var err error
		if s.share, err = memory.NewShare(ctx, s.Group); err != nil {
			return err
		}
	}
	if err := s.shareControl(ctx, failed); err != nil {
		return err
	}
	for i, e := range s.List {
		tag := fmt.Sprintf("share memory regions (%s %d)", s.Label, i)
		var err error
		if e.mappings, err = s.Map(ctx, tag, e, e.Endpoint.Regions()); err != nil {
			return err
		}
		if s.GPU != nil {
			s.prepareGPU(e, tag)
		}
	}
	s.Engines = s.newEngines()
	pages, err := s.Buffers.SharePages(ctx, s.Group)
	s.control = append(s.control, pages...)
	if err == nil && s.GPU != nil && s.World > 1 {
		err = s.probe(ctx, id)
	}
	return err
}

// shareControl exchanges the ranks' control pages. It is collective; failed is an earlier error of this rank.
func (s *Set) shareControl(ctx context.Context, failed error) error {
	notes := int64(0)
	if s.World > 1 {
		notes = executor.MessageBytes(s.World)
	}
	page, err := memory.NewControlPage(notes)
	if err == nil {
		defer func() { _ = page.CloseFD() }() // also when another rank has none; the mapping lives on
	}
	failed = errors.Join(failed, err, s.addForeign())
	if err := s.Group.Agree(ctx, "make control pages ("+s.Label+")", failed); err != nil {
		return err
	}
	tag := "share control pages (" + s.Label + ")"
	pages, err := memory.MapAll(ctx, s.Group, s.share, tag, []plugin.Region{page.Region()}, nil,
		func(r plugin.Region, rank int) (io.Closer, error) {
			if !s.Topology.SameHost(s.Rank, rank) {
				return nil, nil // such a rank rings no doorbell here, and tells what it calls
			}
			return mapHost(r, func(m executor.Memory) error { return s.Engine.SetControl(rank, m) })
		})
	s.control = append(s.control, pages...)
	return err
}

// addForeign gives the executor a page for each rank of another host, which reports fill.
func (s *Set) addForeign() error {
	var ranks []int
	for rank := range s.World {
		if !s.Topology.SameHost(s.Rank, rank) {
			ranks = append(ranks, rank)
		}
	}
	if len(ranks) == 0 {
		return nil
	}
	pages, err := unix.Mmap(-1, 0, len(ranks)*executor.ControlBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return plugin.Errorf(plugin.OutOfMemory, "pages for the calls of %d ranks on other hosts: %w", len(ranks), err)
	}
	s.control = append(s.control, closer(func() error { return unix.Munmap(pages) }))
	s.abroad.Store(true)
	for i, rank := range ranks {
		page := executor.Memory{Base: unsafe.Pointer(&pages[i*executor.ControlBytes]), Bytes: executor.ControlBytes}
		if err := s.Engine.SetControl(rank, page); err != nil {
			return err
		}
	}
	return nil
}

// closer takes a mapping away.
type closer func() error

func (f closer) Close() error { return f() }

// Mappings are regions, mapped here: those of role local, then of each other region those of all ranks of this host
// that have a mapping of their own.
type Mappings []io.Closer

// Close takes the memory away; a GPU's when no operation and no graph can use it any more.
func (m Mappings) Close() error {
	var err error
	for _, mapping := range m {
		err = errors.Join(err, mapping.Close())
	}
	return err
}

// Local returns where a buffer of this rank is mapped. The mappings are of this buffer and its peers'.
func (m Mappings) Local(rank int) unsafe.Pointer {
	if host, ok := m[rank].(*memory.Mapping); ok {
		return host.Base()
	}
	address := m[rank].(deviceMapping).Address()
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}

// Addresses returns where the GPU has the byte at an offset of each rank's buffer; nil for host memory. The mappings
// are of these buffers.
func (m Mappings) Addresses(offset int64) []cuda.Ptr {
	list := make([]cuda.Ptr, len(m))
	for rank := range m {
		mapping, ok := m[rank].(deviceMapping)
		if !ok {
			return nil
		}
		list[rank] = mapping.Address() + cuda.Ptr(offset)
	}
	return list
}

// Map maps the regions of role local, which are this rank's alone, exchanges the others with all ranks, maps those of
// this host's ranks and enters them in the executor's table. It is collective, and returns the mappings also on error.
func (s *Set) Map(ctx context.Context, tag string, e *Endpoint, regions []plugin.Region) (Mappings, error) {
	var shared []plugin.Region
	var mappings Mappings
	var failed error
	for _, r := range regions {
		if r.Role != plugin.RegionRoleLocal {
			shared = append(shared, r)
			continue
		}
		m, err := s.mapRegion(e, r, s.Rank)
		if err != nil {
			failed = fmt.Errorf("mapping region %d of role local: %w", r.ID, err)
			continue
		}
		mappings = append(mappings, m)
	}
	mapped, err := memory.MapAll(ctx, s.Group, s.share, tag, shared, failed,
		func(r plugin.Region, rank int) (io.Closer, error) {
			if !s.Topology.SameHost(s.Rank, rank) {
				return nil, nil
			}
			return s.mapRegion(e, r, rank)
		})
	return append(mappings, mapped...), err
}

// mapRegion maps a region of a rank of this host where it is used.
func (s *Set) mapRegion(e *Endpoint, r plugin.Region, rank int) (m io.Closer, err error) {
	switch {
	case s.GPU != nil && r.Role == plugin.RegionRoleLocal:
		m, err = s.mapLocal(e.Base, r)
	case s.GPU != nil && r.Memory == plugin.MemoryKindCuda:
		m, err = s.mapDevice(e, r, rank)
	default:
		m, err = mapHost(r, func(m executor.Memory) error { return s.Engine.SetRegion(e.Base, r.ID, rank, m) })
	}
	if err != nil {
		return nil, fmt.Errorf("transport %s: %w", e.Name, err)
	}
	return m, nil
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
