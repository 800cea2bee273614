package check

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

func region(id uint32, role plugin.RegionRole) plugin.Region {
	return plugin.Region{ID: id, Role: role, Bytes: 100,
		Handle: plugin.Handle{Kind: plugin.HandleKindMemfd, Generation: 1, Offset: 28, Bytes: 128, FD: 3}}
}

func TestRegions(t *testing.T) {
	good := []plugin.Region{region(0, plugin.RegionRolePrivate), region(1, plugin.RegionRoleScratch)}
	require.NoError(t, Regions(good, plugin.FeatureMemory))
	require.NoError(t, Regions(nil, 0))
	require.Error(t, Regions(nil, plugin.FeatureMemory), "a transport with memory has scratch")
	require.Error(t, Regions(make([]plugin.Region, 17), 0))
	require.Error(t, Regions([]plugin.Region{region(1, 0)}, 0))
	require.Error(t, Regions([]plugin.Region{region(0, plugin.RegionRoleBuffer)}, 0))
	local := []plugin.Region{region(0, plugin.RegionRoleLocal), {ID: 1, Role: plugin.RegionRoleLocal,
		Memory: plugin.MemoryKindCuda, Bytes: 100,
		Handle: plugin.Handle{Kind: plugin.HandleKindCudaVmm, Generation: 1, Bytes: 2 << 20, FD: 3}}}
	require.NoError(t, Regions(local, 0), "a ring, and staging memory of the device")
	local[1].Handle.Kind = plugin.HandleKindCudaIpc
	require.ErrorContains(t, Regions(local, 0), "region 1 of role local is cuda memory with a cuda_ipc handle")
	first := plugin.Region{Memory: plugin.MemoryKindCuda, Bytes: plugin.DeferredMultiple,
		Handle: plugin.Handle{Kind: plugin.HandleKindCudaVmm, Generation: 1, Bytes: plugin.DeferredMultiple, FD: 3}}
	deferred := plugin.Region{ID: 1, Role: plugin.RegionRoleDeferred, Memory: plugin.MemoryKindCuda,
		Bytes: 2 * plugin.DeferredMultiple, Handle: plugin.Handle{FD: -1}}
	require.NoError(t, Regions([]plugin.Region{first, deferred}, 0))
	for name, change := range map[string]func(first, deferred *plugin.Region){
		"host memory":      func(_, d *plugin.Region) { d.Memory = plugin.MemoryKindHost },
		"has a handle":     func(f, d *plugin.Region) { d.Handle = f.Handle },
		"parts of pages":   func(_, d *plugin.Region) { d.Bytes++ },
		"empty":            func(_, d *plugin.Region) { d.Bytes = 0 },
		"behind scratch":   func(f, _ *plugin.Region) { f.Role = plugin.RegionRoleScratch },
		"behind a memfd":   func(f, _ *plugin.Region) { f.Handle.Kind = plugin.HandleKindMemfd },
		"behind an offset": func(f, _ *plugin.Region) { f.Handle.Offset, f.Bytes = 1, f.Bytes-1 },
		"behind half":      func(f, _ *plugin.Region) { f.Handle.Bytes += 5 },
	} {
		f, d := first, deferred
		change(&f, &d)
		require.ErrorContains(t, Regions([]plugin.Region{f, d}, 0), "deferred", name)
	}
	require.Error(t, Regions([]plugin.Region{{Role: plugin.RegionRoleDeferred, Memory: plugin.MemoryKindCuda,
		Bytes: plugin.DeferredMultiple, Handle: plugin.Handle{FD: -1}}}, 0), "behind nothing")
	require.NoError(t, Buffer(region(7, plugin.RegionRoleBuffer), 7, 100))
	require.Error(t, Buffer(region(7, plugin.RegionRoleBuffer), 7, 101))
	for name, change := range map[string]func(*plugin.Region){
		"beyond the handle": func(r *plugin.Region) { r.Handle.Offset = 29 },
		"negative offset":   func(r *plugin.Region) { r.Handle.Offset = -1 },
		"overflow":          func(r *plugin.Region) { r.Bytes, r.Handle.Offset = math.MaxInt64, math.MaxInt64 },
		"empty":             func(r *plugin.Region) { r.Bytes = 0 },
		"no generation":     func(r *plugin.Region) { r.Handle.Generation = 0 },
		"no descriptor":     func(r *plugin.Region) { r.Handle.FD = -1 },
		"unknown kind":      func(r *plugin.Region) { r.Handle.Kind = 99 },
		"unknown memory":    func(r *plugin.Region) { r.Memory = 99 },
		"much data":         func(r *plugin.Region) { r.Handle.Data = make([]byte, 257) },
	} {
		r := region(0, plugin.RegionRolePrivate)
		change(&r)
		require.ErrorIs(t, Region(r), plugin.Protocol, name)
	}
}

func TestImages(t *testing.T) {
	require.NoError(t, Images([]plugin.Image{{Name: "a", Data: []byte{1}}}))
	require.Error(t, Images([]plugin.Image{{Name: "a"}}))
	require.Error(t, Images([]plugin.Image{{Data: []byte{1}}}))
	require.Error(t, Images(make([]plugin.Image, MaxImages+1)))
}
