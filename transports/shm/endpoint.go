package shm

import (
	"context"
	"errors"

	"github.com/shunt-ccl/shunt/plugin"
)

// endpoint is one rank's end of one communicator: two memfds, and one more for
// each buffer.
type endpoint struct {
	rank, world int
	layout      layout
	regions     []plugin.Region
	buffers     map[uint32]plugin.Region
	closed      bool
}

func open(config plugin.OpenConfig) (*endpoint, error) {
	e := &endpoint{
		rank: config.Rank, world: config.World,
		layout:  newLayout(config.World),
		buffers: map[uint32]plugin.Region{},
	}
	for _, r := range []plugin.Region{
		{ID: regionPrivate, Role: plugin.RegionRolePrivate, Bytes: e.layout.bytes},
		{ID: regionScratch, Role: plugin.RegionRoleScratch, Bytes: scratchBytes(config.World)},
	} {
		r.Memory = plugin.MemoryKindHost
		var err error
		if r.Handle, err = newMemfd("shunt-"+r.Role.String(), r.Bytes); err != nil {
			return nil, errors.Join(e.failed("open", err), e.Close())
		}
		e.regions = append(e.regions, r)
	}
	return e, nil
}

func (e *endpoint) failed(what string, err error) error {
	return plugin.Errorf(plugin.CodeOf(err), "shm: %s on rank %d: %w", what, e.rank, err)
}

func (e *endpoint) Regions() []plugin.Region { return e.regions }

func (e *endpoint) Images() []plugin.Image { return nil }

func (e *endpoint) Allocate(_ context.Context, id uint32, bytes int64) (plugin.Region, error) {
	switch _, taken := e.buffers[id]; {
	case e.closed:
		return plugin.Region{}, plugin.Errorf(plugin.Closed, "shm: allocate on rank %d: the endpoint is closed", e.rank)
	case taken || int(id) < len(e.regions):
		return plugin.Region{}, plugin.Errorf(plugin.InvalidArgument, "shm: allocate on rank %d: region %d exists", e.rank,
			id)
	case bytes < 0 || bytes > 1<<60:
		return plugin.Region{}, plugin.Errorf(plugin.InvalidArgument, "shm: allocate on rank %d: %d bytes", e.rank, bytes)
	}
	bytes = (max(bytes, 1) + page - 1) / page * page
	handle, err := newMemfd("shunt-buffer", bytes)
	if err != nil {
		return plugin.Region{}, e.failed("allocate", err)
	}
	r := plugin.Region{ID: id, Role: plugin.RegionRoleBuffer, Memory: plugin.MemoryKindHost, Bytes: bytes, Handle: handle}
	e.buffers[id] = r
	return r, nil
}

func (e *endpoint) Free(_ context.Context, id uint32) error {
	r, ok := e.buffers[id]
	if !ok {
		return plugin.Errorf(plugin.InvalidArgument, "shm: free on rank %d: there is no buffer %d", e.rank, id)
	}
	delete(e.buffers, id)
	if err := closeMemfd(r.Handle); err != nil {
		return e.failed("free", err)
	}
	return nil
}

func (e *endpoint) Prepare(_ context.Context, req plugin.Request, name string) (*plugin.Plan, error) {
	if e.closed {
		return nil, plugin.Errorf(plugin.Closed, "the endpoint is closed")
	}
	if req.Rank != e.rank || req.World != e.world {
		return nil, plugin.Errorf(plugin.InvalidArgument,
			"the endpoint of rank %d of %d cannot prepare a plan for rank %d of %d", e.rank, e.world, req.Rank, req.World)
	}
	if reason := unsupported(req); reason != "" {
		return nil, plugin.Errorf(plugin.Unsupported, "%s", reason)
	}
	for _, a := range table(req) {
		if a.name == name {
			return write(req, e.layout, a)
		}
	}
	return nil, plugin.Errorf(plugin.Unsupported, "there is no algorithm %q for %s in a world of %d", name,
		req.Collective, e.world)
}

func write(req plugin.Request, l layout, a algorithm) (*plugin.Plan, error) {
	w := &writer{
		Builder: plugin.NewBuilder(req, a.name), layout: l,
		me: req.Rank, world: req.World, element: req.DType.Bytes(), pairwise: req.Collective.Pairwise(),
		known: map[plugin.Reg]int64{},
	}
	a.write(w)
	return w.Plan()
}

// Close closes the descriptors. The memory lives for as long as a peer has it
// mapped.
func (e *endpoint) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	var errs []error
	for _, r := range e.regions {
		errs = append(errs, closeMemfd(r.Handle))
	}
	for _, r := range e.buffers {
		errs = append(errs, closeMemfd(r.Handle))
	}
	e.buffers = nil
	if err := errors.Join(errs...); err != nil {
		return e.failed("close", err)
	}
	return nil
}
