package shared

// #include "table.h"
import "C"

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// region copies a region. What it says is for package check.
func region(c *C.shunt_region) (plugin.Region, error) {
	h := &c.handle
	if h.data_bytes > C.SHUNT_MAX_HANDLE_DATA {
		return plugin.Region{}, plugin.Errorf(plugin.Protocol, "region %d: its handle has %d bytes, want at most %d",
			uint32(c.id), uint32(h.data_bytes), plugin.MaxHandleData)
	}
	r := plugin.Region{
		ID: uint32(c.id), Role: plugin.RegionRole(c.role), Memory: plugin.MemoryKind(c.memory), Bytes: int64(c.bytes),
		Handle: plugin.Handle{
			Kind: plugin.HandleKind(h.kind), Generation: uint64(h.generation), Offset: int64(h.offset), Bytes: int64(h.bytes),
			FD: max(int(h.fd), -1),
		},
	}
	for _, b := range h.data[:h.data_bytes] {
		r.Handle.Data = append(r.Handle.Data, byte(b))
	}
	return r, nil
}

// plan copies a plan. Counts are checked before anything behind a pointer is
// read; what the plan means is for plugin.Plan.Validate.
func plan(c *C.shunt_plan, algorithm string) (*plugin.Plan, error) {
	if c.struct_size < C.sizeof_shunt_plan {
		return nil, plugin.Errorf(plugin.Protocol, "the plan's structure has %d bytes, want %d", uint32(c.struct_size),
			uint32(C.sizeof_shunt_plan))
	}
	if c.count_temps > plugin.MaxRegisters {
		return nil, plugin.Errorf(plugin.Protocol, "the plan has %d temporaries, want at most %d", uint32(c.count_temps),
			plugin.MaxRegisters)
	}
	p := &plugin.Plan{
		Algorithm: algorithm, Collective: plugin.Collective(c.collective), DType: plugin.DType(c.dtype), Op: plugin.Op(c.op),
		World: int(c.world), Rank: int(c.rank), Temps: int(c.count_temps),
	}
	var err error
	p.Consts, err = array(err, "constants", c.consts, c.count_consts, plugin.MaxRegisters,
		func(v *C.int64_t) (int64, error) {
			return int64(*v), nil
		})
	p.Refs, err = array(err, "refs", c.refs, c.count_refs, plugin.MaxRefs, func(r *C.shunt_ref) (plugin.Ref, error) {
		return plugin.Ref{
			Space: plugin.Space(r.space), Region: uint16(r.region), Rank: uint16(r.rank), Offset: uint16(r.offset),
			Scale: uint16(r.scale),
		}, nil
	})
	p.Steps, err = array(err, "steps", c.steps, c.count_steps, plugin.MaxSteps,
		func(s *C.shunt_step) (plugin.Step, error) {
			return plugin.Step{
				Kind: plugin.StepKind(s.kind), Alu: plugin.Alu(s.alu), Dst: uint16(s.dst),
				A: uint16(s.a), B: uint16(s.b), C: uint16(s.c), N: uint16(s.n),
			}, nil
		})
	p.Tracks, err = array(err, "tracks", c.tracks, c.count_tracks, plugin.MaxTracks,
		func(t *C.shunt_track) (plugin.Track, error) {
			return plugin.Track{First: uint16(t.first), Count: uint16(t.count)}, nil
		})
	p.Kernels, err = array(err, "kernels", c.kernels, c.count_kernels, plugin.MaxSteps, kernel)
	p.Args, err = array(err, "arguments", c.args, c.count_args, plugin.MaxRefs, func(a *C.shunt_arg) (plugin.Arg, error) {
		return plugin.Arg{Ref: uint16(a.ref), Value: uint16(a.value), Bytes: uint16(a.bytes)}, nil
	})
	p.Natives, err = array(err, "native functions", c.natives, c.count_natives, plugin.MaxSteps,
		func(n *C.shunt_native) (plugin.Native, error) {
			return plugin.Native{
				Function: uintptr(unsafe.Pointer(n.function)), Context: uintptr(n.context),
				Start: uintptr(unsafe.Pointer(n.start)), Poll: uintptr(unsafe.Pointer(n.poll)),
			}, nil
		})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// array copies n elements, unless an earlier array failed already.
func array[From, To any](earlier error, what string, first *From, n C.uint32_t, limit int,
	copyOne func(*From) (To, error)) ([]To, error) {
	switch {
	case earlier != nil:
		return nil, earlier
	case int64(n) > int64(limit):
		return nil, plugin.Errorf(plugin.Protocol, "it has %d %s, want at most %d", uint32(n), what, limit)
	case n == 0:
		return nil, nil
	case first == nil:
		return nil, plugin.Errorf(plugin.Protocol, "it has %d %s at a null address", uint32(n), what)
	}
	out := make([]To, n)
	for i := range out {
		var err error
		if out[i], err = copyOne(&unsafe.Slice(first, int(n))[i]); err != nil {
			return nil, plugin.Errorf(plugin.Protocol, "%s, number %d: %w", what, i, err)
		}
	}
	return out, nil
}

func kernel(c *C.shunt_kernel) (plugin.Kernel, error) {
	image, err := text(c.image, plugin.MaxName)
	if err != nil {
		return plugin.Kernel{}, err
	}
	name, err := text(c.name, 256)
	if err != nil {
		return plugin.Kernel{}, err
	}
	k := plugin.Kernel{Image: image, Name: name, Shared: uint16(c.shared), FirstArg: uint16(c.first_arg),
		CountArgs: uint16(c.count_args)}
	for i := range k.Grid {
		k.Grid[i], k.Block[i] = uint16(c.grid[i]), uint16(c.block[i])
	}
	return k, nil
}
