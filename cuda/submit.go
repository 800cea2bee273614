package cuda

// #cgo noescape sc_launch_all
// #cgo nocallback sc_launch_all
// #cgo noescape sc_submit
// #cgo nocallback sc_submit
// #include "driver.h"
import "C"

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

func (d *driver) LaunchKernels(ctx Context, s Stream, launches []Launch) (int, error) {
	if len(launches) == 0 {
		return 0, nil
	}
	var done C.int
	r := C.sc_launch_all(C.sc_handle(ctx), C.sc_handle(s), (*C.sc_kernel_launch)(unsafe.Pointer(&launches[0])),
		C.int(len(launches)), &done)
	if r != 0 {
		return int(done), d.fail(r, "cuLaunchKernelEx of launch %d of %d", int(done)+1, len(launches))
	}
	return int(done), nil
}

func (d *driver) Submit(ctx Context, b *Batch) (int, Capture, error) {
	var out C.sc_submitted
	var work *C.sc_work
	var params *C.uchar
	if len(b.Work) > 0 {
		work = (*C.sc_work)(unsafe.Pointer(&b.Work[0]))
	}
	if len(b.Params) > 0 {
		params = (*C.uchar)(unsafe.Pointer(&b.Params[0]))
	}
	r := C.sc_submit(C.sc_handle(ctx), C.sc_handle(b.Stream), C.uint64_t(b.StreamID), C.uint64_t(b.Capture), work,
		C.int(len(b.Work)), params, &out)
	capture := Capture{Stream: uint64(out.stream), Status: CaptureStatus(out.capture_status), ID: uint64(out.capture),
		Graph: Graph(out.graph)}
	switch {
	case r == 0:
		return int(out.done), capture, nil
	case r == C.SC_CALL_FAILED:
		report := out.report // of which an address is taken: out stays on the stack
		return int(out.done), capture, plugin.NativeError("native function", plugin.Code(out.call_status),
			int(report.peer)-1, C.GoString(&report.message[0]))
	case out.capture_status == -2:
		return 0, Capture{}, d.fail(r, "making the context current")
	case out.capture_status < 0:
		return 0, Capture{}, d.fail(r, "cuStreamGetCaptureInfo")
	case int(out.done) < len(b.Work):
		return int(out.done), capture, d.fail(r, "%s, piece %d of %d", b.Work[out.done].Kind, int(out.done)+1, len(b.Work))
	}
	return int(out.done), capture, d.fail(r, "cuCtxPopCurrent")
}
