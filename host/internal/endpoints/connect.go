package endpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/plugin"
)

// Meet returns the part in which the servers of descriptors learn of each other. It follows the opening of endpoints.
func (s *Set) Meet() round.Part {
	if s.World == 1 {
		return round.Part{Hear: func([][]byte) error { return nil }}
	}
	s.share = memory.NewShare(s.Group)
	return s.share.Meet()
}

// Connect closes the endpoints that the ranks have agreed to do without, exchanges control pages and the other
// endpoints' regions, maps them, and finds out whether GPUs reach each other's memory. It is collective. id is the
// communicator's number, failed an earlier error of this rank. In the part leaveOut of the same round the ranks may
// agree to do without more endpoints. agree is how they agree on what fails later: it is called once, with this rank's
// error, unless all know one already.
func (s *Set) Connect(ctx context.Context, id uint64, failed error, leaveOut round.Part,
	agree func(error) error) error {
	failed = errors.Join(failed, s.closeAbsent())
	if len(s.List) == 0 {
		return errors.Join(s.noneServes(), failed)
	}
	page, err := s.newControlPage()
	if err == nil {
		defer func() { _ = page.CloseFD() }() // also when another rank has none; the mapping lives on
	}
	failed = errors.Join(failed, err, s.addForeign())
	var regions []plugin.Region
	var of []*Endpoint // by region
	if err == nil {
		regions, of = append(regions, page.Region()), append(of, nil)
	}
	for _, e := range s.List {
		for _, r := range e.Endpoint.Regions() {
			if r.Role != plugin.RegionRoleLocal {
				regions, of = append(regions, r), append(of, e)
			}
		}
	}
	x := memory.NewExchange(s.share, "share memory regions ("+s.Label+")", regions)
	defer x.Close()
	err = round.Exchange(ctx, s.Group, "share memory regions ("+s.Label+")", round.Agreement(s.Rank, failed), leaveOut,
		x.Round())
	if err != nil {
		return err
	}
	failed = s.closeAbsent()
	if len(s.List) == 0 {
		return errors.Join(s.noneServes(), failed)
	}
	failed = errors.Join(failed, s.mapAll(ctx, x, of))
	s.Engines = s.newEngines()
	if s.GPU == nil {
		return agree(failed)
	}
	if err := s.Group.Agree(ctx, "map memory regions ("+s.Label+")", failed); err != nil {
		return err
	}
	pages, err := s.Buffers.SharePages(ctx, s.Group)
	s.control = append(s.control, pages...)
	if err == nil && s.World > 1 {
		err = s.probe(ctx, id)
	}
	if err != nil {
		return err
	}
	return agree(nil)
}

// mapAll maps the control pages and the endpoints' regions, those of role local first. of says whose each region is.
func (s *Set) mapAll(ctx context.Context, x *memory.Exchange, of []*Endpoint) error {
	var failed error
	for _, e := range s.List {
		for _, r := range e.Endpoint.Regions() {
			if r.Role == plugin.RegionRoleLocal && failed == nil {
				failed = s.mapOwn(e, r)
			}
		}
	}
	if failed != nil {
		return failed
	}
	mappings, err := x.Map(ctx, func(i int, r plugin.Region, rank int) (io.Closer, error) {
		switch {
		case !s.Topology.SameHost(s.Rank, rank):
			return nil, nil // such a rank rings no doorbell here, and tells what it calls
		case of[i] == nil:
			return mapHost(r, func(m executor.Memory) error { return s.Engine.SetControl(rank, m) })
		case !slices.Contains(s.List, of[i]): // left out
			return nil, nil
		}
		return s.mapRegion(of[i], r, rank)
	})
	for i, list := range mappings {
		if of[i] == nil {
			s.control = append(s.control, list...)
		} else {
			of[i].mappings = append(of[i].mappings, list...)
		}
	}
	if s.GPU != nil {
		for i, e := range s.List {
			s.prepareGPU(e, fmt.Sprintf("share memory regions (%s %d)", s.Label, i))
		}
	}
	return err
}

// mapOwn maps a region of role local.
func (s *Set) mapOwn(e *Endpoint, r plugin.Region) error {
	m, err := s.mapRegion(e, r, s.Rank)
	if err != nil {
		return fmt.Errorf("mapping region %d of role local: %w", r.ID, err)
	}
	e.mappings = append(e.mappings, m)
	return nil
}

// newControlPage makes this rank's control page.
func (s *Set) newControlPage() (*memory.Segment, error) {
	if s.World == 1 {
		return memory.NewControlPage(0)
	}
	return memory.NewControlPage(executor.MessageBytes(s.World))
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

// Map exchanges a region with all ranks, maps those of this host's ranks and enters them in the executor's table. It is
// collective, and returns the mappings also on error.
func (s *Set) Map(ctx context.Context, tag string, e *Endpoint, region plugin.Region) (Mappings, error) {
	return memory.MapAll(ctx, s.Group, s.share, tag, []plugin.Region{region}, func(r plugin.Region, rank int) (io.Closer,
		error) {
		if !s.Topology.SameHost(s.Rank, rank) {
			return nil, nil
		}
		return s.mapRegion(e, r, rank)
	})
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
