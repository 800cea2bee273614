package export

// #include <stdlib.h>
// #include "export.h"
import "C"

import (
	"context"
	"runtime"
	"runtime/cgo"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/check"
)

// publish makes the C endpoint of a Go one, with its regions and images.
func publish(e plugin.Endpoint) (*C.shunt_endpoint, error) {
	regions, images := e.Regions(), e.Images()
	if len(regions) > plugin.MaxRegions {
		return nil, plugin.Errorf(plugin.Protocol, "it publishes %d regions, want at most %d", len(regions),
			plugin.MaxRegions)
	}
	if err := check.Images(images); err != nil {
		return nil, err
	}
	c := (*C.shunt_endpoint)(C.shunt_export_array(1, C.sizeof_struct_shunt_endpoint))
	for i, r := range regions {
		if err := putRegion(&c.regions[i], r); err != nil {
			C.shunt_export_free_endpoint(c)
			return nil, err
		}
	}
	c.count_regions = C.uint32_t(len(regions))
	c.images = (*C.shunt_image)(C.shunt_export_array(C.size_t(len(images)), C.sizeof_shunt_image))
	o := &opened{Endpoint: e}
	o.life, o.end = context.WithCancel(context.Background())
	for i, image := range unsafe.Slice(c.images, len(images)) {
		image.name = C.CString(images[i].Name)
		o.images.Pin(&images[i].Data[0]) // tens of MB, which every communicator would have a copy of
		image.data = unsafe.Pointer(&images[i].Data[0])
		image.bytes = C.uint64_t(len(images[i].Data))
		unsafe.Slice(c.images, len(images))[i] = image
	}
	c.count_images = C.uint32_t(len(images))
	c.handle = C.uintptr_t(cgo.NewHandle(o))
	return c, nil
}

// opened is a Go endpoint behind a C one.
type opened struct {
	plugin.Endpoint
	images   runtime.Pinner  // what C has the addresses of
	abortErr error           // a panic in Abort, which close reports
	life     context.Context // of Connect; abort and close end it
	end      context.CancelFunc
}

// putRegion fills in a C region. Its descriptor stays the endpoint's.
func putRegion(c *C.shunt_region, r plugin.Region) error {
	h := r.Handle
	if len(h.Data) > plugin.MaxHandleData {
		return plugin.Errorf(plugin.Protocol, "region %d: its handle has %d bytes, want at most %d", r.ID, len(h.Data),
			plugin.MaxHandleData)
	}
	*c = C.shunt_region{
		id: C.uint32_t(r.ID), role: C.shunt_region_role(r.Role), memory: C.shunt_memory_kind(r.Memory),
		bytes: C.int64_t(r.Bytes),
		handle: C.shunt_handle{
			kind: C.shunt_handle_kind(h.Kind), fd: C.int32_t(h.FD), generation: C.uint64_t(h.Generation),
			offset: C.int64_t(h.Offset), bytes: C.int64_t(h.Bytes), data_bytes: C.uint32_t(len(h.Data)),
		},
	}
	for i, b := range h.Data {
		c.handle.data[i] = C.uint8_t(b)
	}
	return nil
}

// cPlan copies a plan into C memory; shunt_export_free_plan frees it.
func cPlan(p *plugin.Plan) (*C.shunt_plan, error) {
	if p.Temps < 0 || p.Temps > plugin.MaxRegisters {
		return nil, plugin.Errorf(plugin.Protocol, "plan %s has %d temporaries, at most %d", p.Algorithm, p.Temps,
			plugin.MaxRegisters)
	}
	c := (*C.shunt_plan)(C.shunt_export_array(1, C.sizeof_shunt_plan))
	*c = C.shunt_plan{
		struct_size: C.sizeof_shunt_plan, collective: C.shunt_collective(p.Collective), dtype: C.shunt_dtype(p.DType),
		op:    C.shunt_op(p.Op),
		world: C.int32_t(p.World), rank: C.int32_t(p.Rank), count_temps: C.uint32_t(p.Temps),
	}
	c.consts, c.count_consts = cArray(p.Consts, func(v int64) C.int64_t { return C.int64_t(v) })
	c.refs, c.count_refs = cArray(p.Refs, func(r plugin.Ref) C.shunt_ref {
		return C.shunt_ref{
			space: C.shunt_space(r.Space), region: C.uint16_t(r.Region), rank: C.uint16_t(r.Rank),
			offset: C.uint16_t(r.Offset), scale: C.uint16_t(r.Scale),
		}
	})
	c.steps, c.count_steps = cArray(p.Steps, func(s plugin.Step) C.shunt_step {
		return C.shunt_step{
			kind: C.shunt_step_kind(s.Kind), alu: C.shunt_alu(s.Alu), dst: C.uint16_t(s.Dst),
			a: C.uint16_t(s.A), b: C.uint16_t(s.B), c: C.uint16_t(s.C), n: C.uint16_t(s.N),
		}
	})
	c.tracks, c.count_tracks = cArray(p.Tracks, func(t plugin.Track) C.shunt_track {
		return C.shunt_track{first: C.uint16_t(t.First), count: C.uint16_t(t.Count)}
	})
	c.kernels, c.count_kernels = cArray(p.Kernels, cKernel)
	c.args, c.count_args = cArray(p.Args, func(a plugin.Arg) C.shunt_arg {
		return C.shunt_arg{ref: C.uint16_t(a.Ref), value: C.uint16_t(a.Value), bytes: C.uint16_t(a.Bytes)}
	})
	c.natives, c.count_natives = cArray(p.Natives, func(n plugin.Native) C.shunt_native {
		var out C.shunt_native
		*(*uintptr)(unsafe.Pointer(&out.function)) = n.Function
		*(*uintptr)(unsafe.Pointer(&out.context)) = n.Context
		*(*uintptr)(unsafe.Pointer(&out.start)) = n.Start
		*(*uintptr)(unsafe.Pointer(&out.poll)) = n.Poll
		return out
	})
	return c, nil
}

// cArray copies a slice into C memory.
func cArray[From, To any](from []From, convert func(From) To) (*To, C.uint32_t) {
	if len(from) == 0 {
		return nil, 0
	}
	var one To
	first := (*To)(C.shunt_export_array(C.size_t(len(from)), C.size_t(unsafe.Sizeof(one))))
	to := unsafe.Slice(first, len(from))
	for i, v := range from {
		to[i] = convert(v)
	}
	return first, C.uint32_t(len(from))
}

func cKernel(k plugin.Kernel) C.shunt_kernel {
	c := C.shunt_kernel{
		image: C.CString(k.Image), name: C.CString(k.Name),
		shared: C.uint16_t(k.Shared), first_arg: C.uint16_t(k.FirstArg), count_args: C.uint16_t(k.CountArgs),
	}
	for i := range k.Grid {
		c.grid[i], c.block[i] = C.uint16_t(k.Grid[i]), C.uint16_t(k.Block[i])
	}
	return c
}
