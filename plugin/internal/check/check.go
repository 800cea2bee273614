// Package check holds the limits that both carriers enforce on a transport's results, beside those that the results'
// types validate themselves.
// A builtin transport is trusted; one in another process or another language is not,
// and nothing it returns reaches the host unchecked.
//
// Every function names what is wrong in an error with code Protocol. Plans are
// checked by plugin.Plan.Validate; nothing here loads, maps or runs anything.
package check

import (
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

// Limits of images that have none in the contract.
const (
	MaxImages     = 64        // images of one endpoint
	MaxImageBytes = 256 << 20 // bytes of one image
)

// Version checks the contract version that a plugin was built with.
func Version(major, minor uint32) error {
	if major != plugin.VersionMajor || minor < plugin.VersionOldest {
		return plugin.Errorf(plugin.PluginRejected, "speaks contract version %d.%d, this host speaks %d.%d", major, minor,
			plugin.VersionMajor, plugin.VersionMinor)
	}
	return nil
}

// Regions checks what an endpoint publishes.
func Regions(regions []plugin.Region, features plugin.Feature) error {
	if len(regions) > plugin.MaxRegions {
		return plugin.Errorf(plugin.Protocol, "it publishes %d regions, want at most %d", len(regions), plugin.MaxRegions)
	}
	scratch, directories := 0, 0
	for i, r := range regions {
		if r.ID != uint32(i) {
			return plugin.Errorf(plugin.Protocol, "region %d has id %d", i, r.ID)
		}
		switch r.Role {
		case plugin.RegionRolePrivate, plugin.RegionRoleScratch, plugin.RegionRoleDirectory:
		case plugin.RegionRoleLocal:
			ring := r.Memory == plugin.MemoryKindHost && r.Handle.Kind == plugin.HandleKindMemfd
			staging := r.Memory == plugin.MemoryKindCuda && r.Handle.Kind == plugin.HandleKindCudaVmm
			if !ring && !staging {
				return plugin.Errorf(plugin.Protocol, "region %d of role local is %s memory with a %s handle, want host memory with a memfd or CUDA memory with a cuda_vmm handle", i, r.Memory, r.Handle.Kind)
			}
		case plugin.RegionRoleDeferred:
			if err := deferred(regions[0], r); err != nil {
				return err
			}
		default:
			return plugin.Errorf(plugin.Protocol, "region %d has role %d, want private, scratch, directory, local or deferred", i,
				uint32(r.Role))
		}
		if r.Role == plugin.RegionRoleDirectory {
			directories++
		}
		if r.Role == plugin.RegionRoleScratch {
			scratch++
		}
		if err := Region(r); err != nil {
			return err
		}
	}
	if features&plugin.FeatureMemory != 0 && scratch != 1 {
		return plugin.Errorf(plugin.Protocol, "it has %d regions of role scratch, want 1 with feature memory", scratch)
	}
	if directories > 1 {
		return plugin.Errorf(plugin.Protocol, "it has %d regions of role directory, want at most 1", directories)
	}
	return nil
}

// deferred checks a region of role deferred, which continues the first one.
func deferred(first, r plugin.Region) error {
	whole := func(bytes int64) bool { return bytes > 0 && bytes%plugin.DeferredMultiple == 0 }
	if r.Memory != plugin.MemoryKindCuda || r.Handle.Kind != plugin.HandleKindNone || !whole(r.Bytes) {
		return plugin.Errorf(plugin.Protocol, "region %d of role deferred is %d bytes of %s memory with a %s handle, want CUDA memory of a multiple of %d bytes without a handle",
			r.ID, r.Bytes, r.Memory, r.Handle.Kind, plugin.DeferredMultiple)
	}
	h := first.Handle
	if first.Role != plugin.RegionRolePrivate || h.Kind != plugin.HandleKindCudaVmm || h.Offset != 0 || !whole(h.Bytes) {
		return plugin.Errorf(plugin.Protocol, "region %d of role deferred continues region 0, which has role %s and a %s handle of %d bytes, want role private and a cuda_vmm handle of a multiple of %d bytes",
			r.ID, first.Role, h.Kind, h.Bytes, plugin.DeferredMultiple)
	}
	return nil
}

// Buffer checks the result of Allocate(id, bytes).
func Buffer(r plugin.Region, id uint32, bytes int64) error {
	if r.ID != id || r.Role != plugin.RegionRoleBuffer || r.Bytes < bytes {
		return plugin.Errorf(plugin.Protocol, "asked for buffer %d of %d bytes, got region %d of role %s and %d bytes", id,
			bytes, r.ID, r.Role, r.Bytes)
	}
	return Region(r)
}

// Region checks one region and its handle, but not its descriptor.
func Region(r plugin.Region) error {
	h := r.Handle
	bad := func(format string, args ...any) error {
		return plugin.Errorf(plugin.Protocol, "region %d: "+format, append([]any{r.ID}, args...)...)
	}
	switch {
	case !memory(r.Memory):
		return bad("memory kind %d is unknown", uint32(r.Memory))
	case r.Bytes <= 0:
		return bad("%d bytes", r.Bytes)
	case len(h.Data) > plugin.MaxHandleData:
		return bad("handle of %d bytes, at most %d", len(h.Data), plugin.MaxHandleData)
	case h.Kind > plugin.HandleKindCudaIpc:
		return bad("handle kind %d is unknown", uint32(h.Kind))
	case h.Kind == plugin.HandleKindNone:
		return nil
	case h.Generation == 0:
		return bad("handle without a generation")
	case h.Offset < 0 || h.Bytes <= 0 || h.Offset > h.Bytes || r.Bytes > h.Bytes-h.Offset:
		return bad("%d bytes at offset %d do not fit the handle's %d bytes", r.Bytes, h.Offset, h.Bytes)
	case (h.Kind == plugin.HandleKindMemfd || h.Kind == plugin.HandleKindCudaVmm) && h.FD < 0:
		return bad("%s handle without a descriptor", h.Kind)
	}
	return nil
}

// Images checks the device code that an endpoint publishes.
func Images(images []plugin.Image) error {
	if len(images) > MaxImages {
		return plugin.Errorf(plugin.Protocol, "it publishes %d images, want at most %d", len(images), MaxImages)
	}
	for _, i := range images {
		if i.Name == "" || len(i.Name) > plugin.MaxName {
			return plugin.Errorf(plugin.Protocol, "image name has %d bytes, want 1 to %d", len(i.Name), plugin.MaxName)
		}
		if plugin.Clip(i.Name) != i.Name {
			return plugin.Errorf(plugin.Protocol, "image name %q is not printable UTF-8", i.Name)
		}
		if len(i.Data) == 0 || len(i.Data) > MaxImageBytes {
			return plugin.Errorf(plugin.Protocol, "image %s has %d bytes, want 1 to %d", i.Name, len(i.Data), MaxImageBytes)
		}
	}
	return nil
}

// Published checks what an endpoint gives to every rank.
func Published(b []byte) error {
	if len(b) > plugin.MaxPublished {
		return plugin.Errorf(plugin.Protocol, "it publishes %d bytes, want at most %d", len(b), plugin.MaxPublished)
	}
	return nil
}

// Plan checks the result of Prepare(req, algorithm): the plan itself, and that
// it is for this request.
func Plan(p *plugin.Plan, req plugin.Request, algorithm string) error {
	if err := p.ValidateFor(req); err != nil {
		return err
	}
	if p.Algorithm != algorithm {
		return plugin.Errorf(plugin.Protocol, "plan %s is for another algorithm, want %s", p.Algorithm, algorithm)
	}
	return nil
}

func memory(m plugin.MemoryKind) bool { return m <= plugin.MemoryKindCuda }

// Behind bounds a text from a plugin as plugin.Clip and puts it behind where, which says once what it is of: a
// transport may have written it too.
func Behind(where, s string) string { return where + plugin.Clip(strings.TrimPrefix(s, where)) }
