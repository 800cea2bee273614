package flawed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// endpoint is one of shm with a region more.
type endpoint struct {
	plugin.Endpoint
	flaw   string
	region plugin.Region
	spare  []plugin.Region // freed buffers
	used   map[uint32]plugin.Region
}

// kept holds what leaks.
var kept struct {
	sync.Mutex
	list []any
}

func keep(what any) {
	kept.Lock()
	defer kept.Unlock()
	kept.list = append(kept.list, what)
}

func keepDescriptor() {
	file, _ := os.Open(os.DevNull)
	keep(file)
}

// Open makes this rank's endpoint.
func (t Transport) Open(ctx context.Context, config plugin.OpenConfig) (plugin.Endpoint, error) {
	switch t.Flaw {
	case "options":
		config.Options = nil
	case "leak_descriptor":
		keepDescriptor()
	case "leak_thread":
		go func() {
			runtime.LockOSThread()
			select {}
		}()
	case "leak_memory":
		b := make([]byte, 2<<20)
		for i := range b {
			b[i] = 1
		}
		keep(b)
	}
	base, err := t.Transport.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	e := &endpoint{Endpoint: base, flaw: t.Flaw, used: map[uint32]plugin.Region{}}
	if e.region, err = newRegion(region, plugin.RegionRolePrivate, regionBytes); err != nil {
		return nil, errors.Join(err, base.Close())
	}
	return e, nil
}

// newRegion makes zero-filled memory.
func newRegion(id uint32, role plugin.RegionRole, bytes int64) (plugin.Region, error) {
	fd, err := unix.MemfdCreate("flawed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return plugin.Region{}, plugin.SystemError(err, "flawed: memfd_create")
	}
	if err := unix.Ftruncate(fd, bytes); err != nil {
		return plugin.Region{}, errors.Join(plugin.SystemError(err, "flawed: %d bytes", bytes), unix.Close(fd))
	}
	return plugin.Region{ID: id, Role: role, Memory: plugin.MemoryKindHost, Bytes: bytes,
		Handle: plugin.Handle{Kind: plugin.HandleKindMemfd, Generation: uint64(id) + 1, Bytes: bytes, FD: fd}}, nil
}

func (e *endpoint) Regions() []plugin.Region { return append(e.Endpoint.Regions(), e.region) }

// Prepare writes the plan of all_gather_v, and has shm write the others.
func (e *endpoint) Prepare(ctx context.Context, req plugin.Request, algorithm string) (*plugin.Plan, error) {
	if e.flaw == "leak_plan" {
		keepDescriptor()
	}
	if bytes := req.DType.Bytes(); req.Collective == plugin.AllToAllV && e.flaw == fmt.Sprintf("no_plan_%d", bytes) {
		return nil, plugin.Errorf(plugin.Unsupported, "no plan for elements of %d bytes", bytes)
	}
	of := algorithm
	switch {
	case algorithm == pieces:
		return e.allGatherV(req)
	case algorithm == some && e.flaw == "no_plan_some":
		return nil, plugin.Errorf(plugin.Unsupported, "no plan for some dtypes")
	case algorithm == some:
		of = shm.Transport{}.Supports(req).Algorithms[0].Name
	}
	plan, err := e.Endpoint.Prepare(ctx, req, of)
	if err != nil {
		return nil, err
	}
	plan.Algorithm = algorithm
	if e.flaw == "recv_8" && req.Collective == plugin.Recv && req.DType.Bytes() == 8 {
		emptyCopies(plan)
	}
	return plan, nil
}

// Allocate gives memory of an earlier window as it is, if that is the flaw.
func (e *endpoint) Allocate(ctx context.Context, id uint32, bytes int64) (plugin.Region, error) {
	if len(e.spare) > 0 && e.spare[0].Bytes >= bytes {
		r := e.spare[0]
		r.ID, e.spare = id, e.spare[1:]
		e.used[id] = r
		return r, nil
	}
	r, err := e.Endpoint.Allocate(ctx, id, bytes)
	if err == nil {
		e.used[id] = r
	}
	return r, err
}

// Free keeps the memory of windows, if that is the flaw.
func (e *endpoint) Free(ctx context.Context, id uint32) error {
	switch e.flaw {
	case "dirty_window":
		e.spare = append(e.spare, e.used[id])
		return nil
	case "leak_window":
		fd, err := unix.FcntlInt(uintptr(e.used[id].Handle.FD), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		keep(fd)
	}
	return e.Endpoint.Free(ctx, id)
}

func (e *endpoint) Close() error {
	return errors.Join(e.Endpoint.Close(), unix.Close(e.region.Handle.FD))
}
