package plantest

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// memory is an endpoint that only has memory.
type memory struct {
	t       testing.TB
	regions []plugin.Region
}

// ScratchEndpoints returns endpoints of one scratch region each, with number 0, for
// plans that need no more.
func ScratchEndpoints(t testing.TB, world int, bytes int64) []plugin.Endpoint {
	t.Helper()
	endpoints := make([]plugin.Endpoint, world)
	for r := range endpoints {
		m := &memory{t: t}
		if _, err := m.region(0, plugin.RegionRoleScratch, bytes); err != nil {
			t.Fatal(err)
		}
		endpoints[r] = m
	}
	return endpoints
}

func (m *memory) region(id uint32, role plugin.RegionRole, bytes int64) (plugin.Region, error) {
	fd, err := unix.MemfdCreate("plantest", unix.MFD_CLOEXEC)
	if err != nil {
		return plugin.Region{}, err
	}
	r := plugin.Region{
		ID: id, Role: role, Memory: plugin.MemoryKindHost, Bytes: bytes,
		Handle: plugin.Handle{Kind: plugin.HandleKindMemfd, Generation: 1, Bytes: bytes, FD: fd},
	}
	m.regions = append(m.regions, r)
	return r, unix.Ftruncate(fd, bytes)
}

func (m *memory) Regions() []plugin.Region { return m.regions[:1] }
func (m *memory) Images() []plugin.Image   { return nil }

func (m *memory) Allocate(_ context.Context, id uint32, bytes int64) (plugin.Region, error) {
	return m.region(id, plugin.RegionRoleBuffer, bytes)
}

func (m *memory) Free(context.Context, uint32) error { return nil }

func (m *memory) Prepare(_ context.Context, req plugin.Request, name string) (*plugin.Plan, error) {
	return nil, plugin.Errorf(plugin.Unsupported, "no plan for %s/%s: this endpoint has only memory", req.Collective, name)
}

func (m *memory) Close() error {
	for _, r := range m.regions {
		if err := unix.Close(r.Handle.FD); err != nil {
			return err
		}
	}
	m.regions = nil
	return nil
}
