package shared

// #include <stdlib.h>
// #include "table.h"
import "C"

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/check"
)

// endpoint is an endpoint of a loaded object. Descriptors of its regions stay
// the object's own until it is closed.
type endpoint struct {
	transport *transport
	config    plugin.OpenConfig
	handle    *C.shunt_endpoint // nil once closed
	regions   []plugin.Region
	images    []plugin.Image
}

// begin starts every call on the endpoint. C cannot be
// interrupted, so a context is looked at before a call only.
func (e *endpoint) begin(ctx context.Context, operation string) error {
	if e.handle == nil {
		return e.errorf(operation, plugin.Closed, "the endpoint is closed")
	}
	if err := ctx.Err(); err != nil {
		return e.errorf(operation, plugin.CodeOf(err), "%w", err)
	}
	return nil
}

// end makes an error of a call's status.
func (e *endpoint) end(operation string, status C.shunt_status) error {
	if status == C.SHUNT_OK {
		return nil
	}
	return e.failed(operation, status, e.lastError())
}

// lastError returns the sentence that the endpoint's last call has left; "" where there
// is none.
func (e *endpoint) lastError() string {
	if e.handle == nil {
		return ""
	}
	return sentence(C.shunt_call_last_error(e.transport.table, e.handle), plugin.MaxText)
}

// said returns the sentence that open or close has left; "" where there is none.
func said(message *[C.SHUNT_MAX_MESSAGE]C.char) string {
	return sentence(&message[0], len(message))
}

// copyPublished copies the endpoint's regions and images.
func (e *endpoint) copyPublished() error {
	var regions *C.shunt_region
	var count C.uint32_t
	if err := e.end("regions", C.shunt_call_regions(e.transport.table, e.handle, &regions, &count)); err != nil {
		return err
	}
	if count > C.SHUNT_MAX_REGIONS || (count > 0 && regions == nil) {
		return e.errorf("regions", plugin.Protocol, "%d regions at %p, at most %d", uint32(count), regions, plugin.MaxRegions)
	}
	for i := range unsafe.Slice(regions, count) {
		r, err := region(&unsafe.Slice(regions, count)[i])
		if err != nil {
			return e.errorf("regions", plugin.Protocol, "%w", err)
		}
		e.regions = append(e.regions, r)
	}
	if err := check.Regions(e.regions, e.transport.info.Features); err != nil {
		return e.errorf("regions", plugin.Protocol, "%w", err)
	}
	if e.transport.table.images == nil {
		return nil
	}
	var images *C.shunt_image
	count = 0
	if err := e.end("images", C.shunt_call_images(e.transport.table, e.handle, &images, &count)); err != nil {
		return err
	}
	if count > check.MaxImages || (count > 0 && images == nil) {
		return e.errorf("images", plugin.Protocol, "%d images at %p, at most %d", uint32(count), images, check.MaxImages)
	}
	for _, i := range unsafe.Slice(images, count) {
		name, err := text(i.name, plugin.MaxName)
		if err != nil || i.bytes > check.MaxImageBytes || i.data == nil {
			return e.errorf("images", plugin.Protocol, "image %q of %d bytes at %p", name, uint64(i.bytes), i.data)
		}
		data := unsafe.Slice((*byte)(i.data), int(i.bytes))
		e.images = append(e.images, plugin.Image{Name: name, Data: e.transport.images.of(name, data)})
	}
	if err := check.Images(e.images); err != nil {
		return e.errorf("images", plugin.Protocol, "%w", err)
	}
	return nil
}

// Regions returns copies; their descriptors are the object's.
func (e *endpoint) Regions() []plugin.Region { return e.regions }

// Images returns copies.
func (e *endpoint) Images() []plugin.Image { return e.images }

// Allocate has the object allocate a buffer.
func (e *endpoint) Allocate(ctx context.Context, id uint32, bytes int64) (plugin.Region, error) {
	operation := fmt.Sprintf("allocate buffer %d of %d bytes", id, bytes)
	if err := e.begin(ctx, operation); err != nil {
		return plugin.Region{}, err
	}
	if e.transport.info.Features&plugin.FeatureBuffers == 0 {
		return plugin.Region{}, e.errorf(operation, plugin.Unsupported, "the transport has no buffers")
	}
	c := C.shunt_region{handle: C.shunt_handle{fd: -1}}
	if err := e.end(operation, C.shunt_call_allocate(e.transport.table, e.handle, C.uint32_t(id), C.int64_t(bytes),
		&c)); err != nil {
		return plugin.Region{}, err
	}
	r, err := region(&c)
	if err == nil {
		err = check.Buffer(r, id, bytes)
	}
	if err != nil {
		C.shunt_call_free(e.transport.table, e.handle, C.uint32_t(id))
		return plugin.Region{}, e.errorf(operation, plugin.Protocol, "%w", err)
	}
	return r, nil
}

// Free has the object free a buffer.
func (e *endpoint) Free(ctx context.Context, id uint32) error {
	operation := fmt.Sprintf("free buffer %d", id)
	if err := e.begin(ctx, operation); err != nil {
		return err
	}
	if e.transport.info.Features&plugin.FeatureBuffers == 0 {
		return e.errorf(operation, plugin.Unsupported, "the transport has no buffers")
	}
	return e.end(operation, C.shunt_call_free(e.transport.table, e.handle, C.uint32_t(id)))
}

// Prepare copies the plan that the object makes, and gives the object's own
// back at once.
func (e *endpoint) Prepare(ctx context.Context, req plugin.Request, algorithm string) (*plugin.Plan, error) {
	operation := fmt.Sprintf("prepare %s/%s", req.Collective, plugin.Clip(algorithm))
	if err := e.begin(ctx, operation); err != nil {
		return nil, err
	}
	if e.transport.info.Features&plugin.FeaturePlans == 0 {
		return nil, e.errorf(operation, plugin.Unsupported, "the transport has no plans")
	}
	asked := request(req)
	name := C.CString(algorithm)
	defer C.free(unsafe.Pointer(name))
	var c *C.shunt_plan
	if err := e.end(operation, C.shunt_call_prepare(e.transport.table, e.handle, &asked, name, &c)); err != nil {
		return nil, err
	}
	if c == nil {
		return nil, e.errorf(operation, plugin.Protocol, "it succeeded without a plan")
	}
	defer C.shunt_call_free_plan(e.transport.table, e.handle, c)
	p, err := plan(c, algorithm)
	if err == nil {
		err = check.Plan(p, req, algorithm)
	}
	if err != nil {
		return nil, e.errorf(operation, plugin.CodeOf(err), "%w", err)
	}
	return p, nil
}

// Close closes the endpoint; once.
func (e *endpoint) Close() error {
	if e.handle == nil {
		return nil
	}
	var message [C.SHUNT_MAX_MESSAGE]C.char
	status := C.shunt_call_close(e.transport.table, e.handle, &message[0], C.SHUNT_MAX_MESSAGE)
	e.handle, e.regions, e.images = nil, nil, nil
	if status != C.SHUNT_OK {
		return e.failed("close", status, said(&message))
	}
	return nil
}
