package endpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/host/internal/plans"
	"github.com/shunt-ccl/shunt/host/internal/survey"
	"github.com/shunt-ccl/shunt/host/memory"
	"github.com/shunt-ccl/shunt/plugin"
)

// GPU runs plans and maps memory on a communicator's GPU.
type GPU struct {
	buffers.GPU
	Exec    *executor.Device
	Flights diagnosis.Flights // the latest operations
	bus     string
	copies  *memory.Staging          // the host's own
	whole   map[handleKey]allocation // what the endpoints' handles stand for
}

// handleKey names what a rank's endpoint, at a base, has exported, of which regions are parts. Each transport numbers
// what it exports by itself.
type handleKey struct {
	base       uint32
	rank       int
	generation uint64
}

// allocation is where memory is mapped as a whole, of which regions are parts.
type allocation struct {
	start cuda.Ptr
	bytes int64
}

// stagingBytes is the longest copy of the host's own: patterns of the probe, and zeroes for memory that is made.
const stagingBytes = 16 * survey.PatternBytes

// NewGPU makes the executor of a rank's GPU, with a record of so many operations. It is local.
func NewGPU(driver cuda.Driver, context cuda.Context, info cuda.DeviceInfo, rank, world, records int) (*GPU, error) {
	exec, err := executor.NewDevice(driver, info.Ordinal, rank, world)
	if err != nil {
		return nil, err
	}
	copies, err := memory.NewStaging(driver, context, stagingBytes)
	if err != nil {
		return nil, errors.Join(err, exec.Close())
	}
	return &GPU{GPU: buffers.GPU{Driver: driver, Context: context, Ordinal: info.Ordinal}, Exec: exec, bus: info.Bus,
		Flights: diagnosis.NewFlights(records), copies: copies, whole: map[handleKey]allocation{}}, nil
}

// prepareGPU notes what GPUs may use of an endpoint, after its regions were mapped.
func (s *Set) prepareGPU(e *Endpoint, tag string) {
	regions := e.Endpoint.Regions()
	if slices.ContainsFunc(regions, func(r plugin.Region) bool { return r.Role == plugin.RegionRoleLocal }) {
		e.Enqueues.Store(true)
	}
	if len(e.later) > 0 {
		e.deferred = memory.NewDeferred(memory.DeferredConfig{
			Driver: s.GPU.Driver, Context: s.GPU.Context, Device: s.GPU.Ordinal, Rank: s.Rank, Copies: s.GPU.copies,
			Share: s.share, Tag: tag, Ranks: e.first, Before: regions[0].Handle.Bytes, Late: s.MemoryLate,
		}, e.later)
	}
}

// newEngines makes what registers the caller's memory with the transports that want it; nil where none does.
func (s *Set) newEngines() *buffers.Engines {
	var list []buffers.Engine
	for _, e := range s.List {
		if r, ok := e.Endpoint.(plugin.Registrar); ok && e.Features&plugin.FeatureRegistration != 0 {
			list = append(list, buffers.Engine{Name: e.Name, Base: e.Base, Registrar: r})
		}
	}
	if s.GPU == nil {
		return buffers.NewEngines(s.Observer, buffers.GPU{}, nil, list)
	}
	return buffers.NewEngines(s.Observer, s.GPU.GPU, s.GPU.Exec, list)
}

// probe finds out whether GPUs reach each other's memory, in the first region of each transport. It is collective. id
// is the communicator's number.
func (s *Set) probe(ctx context.Context, id uint64) error {
	gpus := survey.GPUs{
		Survey: &survey.Survey{Observer: s.Observer, Group: s.Group}, Driver: s.GPU.Driver, Context: s.GPU.Context,
		Bus: s.GPU.bus, Copies: s.GPU.copies,
	}
	for i, e := range s.List {
		if slices.Contains(e.first, nil) || e.Endpoint.Regions()[0].Bytes < gpus.ProbeBytes() {
			continue // alike on all ranks, as regions are
		}
		if err := gpus.Probe(ctx, fmt.Sprintf("probe the memory of peers (%s %d)", s.Label, i), id, e.first); err != nil {
			return err
		}
	}
	return nil
}

// MakeDeferred makes what a plan needs of the regions that its endpoint has deferred, on this rank and on the peers
// that take part; nil are all ranks. It waits for peers' processes, but for none of their calls. One caller at a time.
func (s *Set) MakeDeferred(ctx context.Context, program *plans.Program, peers []int) error {
	if len(program.Deferred) == 0 {
		return nil
	}
	e := s.List[slices.IndexFunc(s.List, func(e *Endpoint) bool { return e.Base == program.Base })]
	for _, i := range program.Deferred {
		if !e.deferred.Has(i, peers) {
			if err := s.mapDeferred(ctx, e, i, peers); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Set) mapDeferred(ctx context.Context, e *Endpoint, i int, peers []int) error {
	ctx, cancel := s.Deadline(ctx)
	defer cancel()
	ctx, stop := s.Failure.While(ctx)
	defer stop()
	return e.deferred.Map(ctx, i, peers, func(of int, address cuda.Ptr) error {
		r := e.deferred.Region(i)
		return s.GPU.Exec.SetRegion(e.Base, r.ID, of, address, r.Bytes)
	})
}

// DeviceBytes returns the memory that the endpoints hold on this rank's GPU, windows not included.
func (s *Set) DeviceBytes() (total int64) {
	for _, e := range s.List {
		for _, r := range e.Endpoint.Regions() {
			if r.Memory == plugin.MemoryKindCuda && r.Role != plugin.RegionRoleDirectory { // which lies in another region
				total += r.Handle.Bytes // 0 of those that are deferred
			}
		}
		if e.deferred != nil {
			total += e.deferred.Held()
		}
	}
	return total
}

// deviceMapping is unmapped once no operation and no graph can use it any more.
type deviceMapping struct {
	*memory.DeviceMapping
	exec *executor.Device
}

func (m deviceMapping) Close() error { return m.exec.Later(m.DeviceMapping.Close) }

// mapDevice maps a region of a rank for the GPU and enters it in the executor's table. A directory is its owner's
// alone.
func (s *Set) mapDevice(e *Endpoint, r plugin.Region, rank int) (io.Closer, error) {
	if r.Role == plugin.RegionRoleDeferred || r.Role == plugin.RegionRoleDirectory && rank != s.Rank {
		return nil, nil
	}
	if r.Role == plugin.RegionRoleDirectory && r.Bytes < plugin.DirectoryBytes(s.World) {
		return nil, plugin.Errorf(plugin.Protocol, "a directory of %d bytes for %d ranks, want %d", r.Bytes, s.World,
			plugin.DirectoryBytes(s.World))
	}
	key := handleKey{e.Base, rank, r.Handle.Generation}
	if whole, mapped := s.GPU.whole[key]; mapped && r.Role != plugin.RegionRoleBuffer {
		if r.Handle.Offset > whole.bytes-r.Bytes { // a rank's handles may contradict each other
			return nil, plugin.Errorf(plugin.Protocol, "%d bytes at offset %d do not lie in the %d bytes of handle %d", r.Bytes,
				r.Handle.Offset, whole.bytes, r.Handle.Generation)
		}
		// A part of what another region maps: one address for one place.
		return nil, s.enter(e.Base, r, rank, whole.start+cuda.Ptr(r.Handle.Offset))
	}
	behind := int64(0)
	if r.ID == 0 && r.Role == plugin.RegionRolePrivate {
		for _, later := range e.later {
			behind += later.Bytes
		}
	}
	m, err := memory.MapExtensible(s.GPU.Driver, s.GPU.Context, s.GPU.Ordinal, r, behind)
	if err != nil {
		return nil, err
	}
	if err := s.enter(e.Base, r, rank, m.Address()); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if r.Role != plugin.RegionRoleBuffer {
		s.GPU.whole[key] = allocation{m.Address() - cuda.Ptr(r.Handle.Offset), r.Handle.Bytes}
	}
	if r.ID == 0 {
		e.first[rank] = m
	}
	return deviceMapping{m, s.GPU.Exec}, nil
}

// enter puts a region into the executor's table.
func (s *Set) enter(base uint32, r plugin.Region, rank int, address cuda.Ptr) error {
	if r.Role == plugin.RegionRoleDirectory && s.Buffers == nil {
		s.Buffers = buffers.New(s.Observer, s.GPU.GPU, s.GPU.Exec, s.GPU.copies, s.share, address)
	}
	return s.GPU.Exec.SetRegion(base, r.ID, rank, address, r.Bytes)
}

// mapLocal maps memory of this rank's alone, the device's or the host's, and lets the GPU reach it. Its endpoint is
// closed once no operation and no graph can use it.
func (s *Set) mapLocal(base uint32, r plugin.Region) (io.Closer, error) {
	g := s.GPU
	if r.Memory == plugin.MemoryKindCuda {
		m, err := memory.MapDevice(g.Driver, g.Context, g.Ordinal, r)
		if err != nil {
			return nil, err
		}
		if err := g.Exec.SetRegion(base, r.ID, s.Rank, m.Address(), r.Bytes); err != nil {
			return nil, errors.Join(err, m.Close())
		}
		return m, nil
	}
	var here unsafe.Pointer
	m, err := mapHost(r, func(m executor.Memory) error {
		at, err := g.Driver.RegisterHost(g.Context, m.Base, r.Bytes)
		if err != nil {
			return err
		}
		if err = g.Exec.SetLocal(base, r.ID, at, m.Base, r.Bytes); err != nil {
			return errors.Join(err, g.Driver.UnregisterHost(g.Context, m.Base))
		}
		here = m.Base
		return nil
	})
	if err != nil {
		return nil, err
	}
	return closer(func() error { return errors.Join(g.Driver.UnregisterHost(g.Context, here), m.Close()) }), nil
}
