package shared

// #include <stdlib.h>
// #include "table.h"
import "C"

import (
	"context"
	"math"
	"runtime"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/check"
)

// exchanges reports whether the object exchanges bytes, and stores the exchange where C
// reads it.
func (e *endpoint) exchanges(ctx context.Context, operation string, x plugin.Exchange,
	call func(*C.shunt_request, *C.char) error) error {
	if err := e.begin(ctx, operation); err != nil {
		return err
	}
	if e.transport.info.Features&plugin.FeatureExchange == 0 {
		return e.errorf(operation, plugin.Unsupported, "the transport exchanges nothing")
	}
	if x.Algorithm == "" {
		return call(nil, nil)
	}
	asked := request(x.Request)
	name := C.CString(x.Algorithm)
	defer C.free(unsafe.Pointer(name))
	return call(&asked, name)
}

// Publish copies what the object gives to every rank.
func (e *endpoint) Publish(ctx context.Context, x plugin.Exchange) (published []byte, err error) {
	err = e.exchanges(ctx, "publish", x, func(r *C.shunt_request, algorithm *C.char) error {
		var out C.shunt_published
		if err := e.end("publish", C.shunt_call_publish(e.transport.table, e.handle, r, algorithm, &out)); err != nil {
			return err
		}
		if out.bytes > C.SHUNT_MAX_PUBLISHED || (out.bytes > 0 && out.data == nil) {
			return e.errorf("publish", plugin.Protocol, "%d bytes published at %p, at most %d", uint64(out.bytes), out.data,
				plugin.MaxPublished)
		}
		published = C.GoBytes(out.data, C.int(out.bytes))
		return nil
	})
	return published, err
}

// Connect gives the object what all ranks have published.
func (e *endpoint) Connect(ctx context.Context, x plugin.Exchange, published [][]byte) error {
	return e.exchanges(ctx, "connect", x, func(r *C.shunt_request, algorithm *C.char) error {
		var pinner runtime.Pinner
		defer pinner.Unpin()
		all := make([]C.shunt_published, len(published))
		for rank, b := range published {
			if err := check.Published(b); err != nil {
				return e.errorf("connect", plugin.InvalidArgument, "rank %d: %w", rank, err)
			}
			if all[rank].bytes = C.uint64_t(len(b)); len(b) > 0 {
				pinner.Pin(&b[0])
				all[rank].data = unsafe.Pointer(&b[0])
			}
		}
		return e.end("connect", C.shunt_call_connect(e.transport.table, e.handle, r, algorithm, unsafe.SliceData(all),
			C.uint32_t(len(all)), C.int64_t(left(ctx))))
	})
}

// Abort tells the object that the communicator has failed. The host does not close the
// endpoint meanwhile.
func (e *endpoint) Abort(reason string) {
	if e.handle == nil || e.transport.table.abort == nil {
		return
	}
	text := C.CString(plugin.Clip(reason))
	defer C.free(unsafe.Pointer(text))
	C.shunt_call_abort(e.transport.table, e.handle, text)
}

// Check asks the object what has failed between calls.
func (e *endpoint) Check() error {
	if e.handle == nil || e.transport.table.check == nil {
		return nil
	}
	var report C.shunt_native_report
	if status := C.shunt_call_check(e.transport.table, e.handle, &report); status != C.SHUNT_OK {
		return plugin.NativeError("check", plugin.Code(status), int(report.peer)-1,
			sentence(&report.message[0], len(report.message)))
	}
	return nil
}

// left returns the time until ctx ends; C gets it because it cannot be interrupted.
func left(ctx context.Context) time.Duration {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return math.MaxInt64
	}
	return max(time.Until(deadline), 0)
}
