package cuda

// #cgo noescape sc_launch_all
// #cgo nocallback sc_launch_all
// #include "driver.h"
// #include <stdlib.h>
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

func (d *driver) NewStream(ctx Context, priority int) (Stream, error) {
	var s C.sc_handle
	if r := C.sc_stream_create(C.sc_handle(ctx), C.int(priority), &s); r != 0 {
		return 0, d.fail(r, "cuStreamCreateWithPriority")
	}
	return Stream(s), nil
}

func (d *driver) DestroyStream(ctx Context, s Stream) error {
	if r := C.sc_stream_destroy(C.sc_handle(ctx), C.sc_handle(s)); r != 0 {
		return d.fail(r, "cuStreamDestroy")
	}
	return nil
}

func (d *driver) SynchronizeStream(ctx Context, s Stream) error {
	if r := C.sc_stream_synchronize(C.sc_handle(ctx), C.sc_handle(s)); r != 0 {
		return d.fail(r, "cuStreamSynchronize")
	}
	return nil
}

func (d *driver) StreamDone(ctx Context, s Stream) (bool, error) {
	r := C.sc_stream_query(C.sc_handle(ctx), C.sc_handle(s))
	if r != 0 && Result(r) != NotReady {
		return false, d.fail(r, "cuStreamQuery")
	}
	return r == 0, nil
}

func (d *driver) Copy(ctx Context, to, from Ptr, bytes int64, s Stream) error {
	if bytes < 0 {
		return plugin.Errorf(plugin.InvalidArgument, "cuMemcpyAsync of %d bytes", bytes)
	}
	if r := C.sc_copy(C.sc_handle(ctx), C.sc_ptr(to), C.sc_ptr(from), C.uint64_t(bytes), C.sc_handle(s)); r != 0 {
		return d.fail(r, "cuMemcpyAsync of %d bytes from %#x to %#x", bytes, uint64(from), uint64(to))
	}
	return nil
}

func (d *driver) Set(ctx Context, to Ptr, value byte, bytes int64, s Stream) error {
	if bytes < 0 {
		return plugin.Errorf(plugin.InvalidArgument, "cuMemsetD8Async of %d bytes", bytes)
	}
	if r := C.sc_set(C.sc_handle(ctx), C.sc_ptr(to), C.uchar(value), C.uint64_t(bytes), C.sc_handle(s)); r != 0 {
		return d.fail(r, "cuMemsetD8Async of %d bytes at %#x", bytes, uint64(to))
	}
	return nil
}

func (d *driver) WriteValue(ctx Context, s Stream, word Ptr, value uint64) error {
	if r := C.sc_write_value(C.sc_handle(ctx), C.sc_handle(s), C.sc_ptr(word), C.uint64_t(value)); r != 0 {
		return d.fail(r, "cuStreamWriteValue64 at %#x", uint64(word))
	}
	return nil
}

func (d *driver) WaitValue(ctx Context, s Stream, word Ptr, value uint64) error {
	if r := C.sc_wait_value(C.sc_handle(ctx), C.sc_handle(s), C.sc_ptr(word), C.uint64_t(value)); r != 0 {
		return d.fail(r, "cuStreamWaitValue64 at %#x", uint64(word))
	}
	return nil
}

func (d *driver) NewEvent(ctx Context, timing bool) (Event, error) {
	var e C.sc_handle
	t := C.int(0)
	if timing {
		t = 1
	}
	if r := C.sc_event_create(C.sc_handle(ctx), t, &e); r != 0 {
		return 0, d.fail(r, "cuEventCreate")
	}
	return Event(e), nil
}

func (d *driver) DestroyEvent(ctx Context, e Event) error {
	if r := C.sc_event_destroy(C.sc_handle(ctx), C.sc_handle(e)); r != 0 {
		return d.fail(r, "cuEventDestroy")
	}
	return nil
}

func (d *driver) Record(ctx Context, e Event, s Stream) error {
	if r := C.sc_event_record(C.sc_handle(ctx), C.sc_handle(e), C.sc_handle(s)); r != 0 {
		return d.fail(r, "cuEventRecord")
	}
	return nil
}

func (d *driver) EventDone(ctx Context, e Event) (bool, error) {
	r := C.sc_event_query(C.sc_handle(ctx), C.sc_handle(e))
	if r != 0 && Result(r) != NotReady {
		return false, d.fail(r, "cuEventQuery")
	}
	return r == 0, nil
}

func (d *driver) Elapsed(ctx Context, from, to Event) (float64, error) {
	var ms C.float
	if r := C.sc_event_elapsed(C.sc_handle(ctx), C.sc_handle(from), C.sc_handle(to), &ms); r != 0 {
		return 0, d.fail(r, "cuEventElapsedTime")
	}
	return float64(ms) * 1e3, nil
}

func (d *driver) WaitEvent(ctx Context, s Stream, e Event) error {
	if r := C.sc_stream_wait(C.sc_handle(ctx), C.sc_handle(s), C.sc_handle(e)); r != 0 {
		return d.fail(r, "cuStreamWaitEvent")
	}
	return nil
}

func (d *driver) BeginCapture(ctx Context, s Stream) error {
	if r := C.sc_capture_begin(C.sc_handle(ctx), C.sc_handle(s)); r != 0 {
		return d.fail(r, "cuStreamBeginCapture")
	}
	return nil
}

func (d *driver) EndCapture(ctx Context, s Stream) (Graph, error) {
	var g C.sc_handle
	if r := C.sc_capture_end(C.sc_handle(ctx), C.sc_handle(s), &g); r != 0 {
		return 0, d.fail(r, "cuStreamEndCapture")
	}
	return Graph(g), nil
}

func (d *driver) CaptureInfo(ctx Context, s Stream) (Capture, error) {
	var status C.int
	var id C.uint64_t
	var g C.sc_handle
	if r := C.sc_capture_info(C.sc_handle(ctx), C.sc_handle(s), &status, &id, &g); r != 0 {
		return Capture{}, d.fail(r, "cuStreamGetCaptureInfo")
	}
	return Capture{Status: CaptureStatus(status), ID: uint64(id), Graph: Graph(g)}, nil
}

func (d *driver) Instantiate(ctx Context, g Graph) (GraphExec, error) {
	var x C.sc_handle
	if r := C.sc_graph_instantiate(C.sc_handle(ctx), C.sc_handle(g), &x); r != 0 {
		return 0, d.fail(r, "cuGraphInstantiate")
	}
	return GraphExec(x), nil
}

func (d *driver) LaunchGraph(ctx Context, x GraphExec, s Stream) error {
	if r := C.sc_graph_launch(C.sc_handle(ctx), C.sc_handle(x), C.sc_handle(s)); r != 0 {
		return d.fail(r, "cuGraphLaunch")
	}
	return nil
}

func (d *driver) DestroyGraph(g Graph) error {
	if r := C.sc_graph_destroy(C.sc_handle(g)); r != 0 {
		return d.fail(r, "cuGraphDestroy")
	}
	return nil
}

func (d *driver) DestroyGraphExec(x GraphExec) error {
	if r := C.sc_graph_exec_destroy(C.sc_handle(x)); r != 0 {
		return d.fail(r, "cuGraphExecDestroy")
	}
	return nil
}

func (d *driver) RetainOnGraph(g Graph, token uint64) error {
	if r := C.sc_graph_retain(C.sc_handle(g), C.uint64_t(token)); r != 0 {
		return d.fail(r, "cuGraphRetainUserObject")
	}
	return nil
}

func (d *driver) Released(tokens []uint64) []uint64 {
	if len(tokens) == 0 {
		return tokens
	}
	n := C.sc_released((*C.uint64_t)(unsafe.Pointer(&tokens[0])), C.int(len(tokens)))
	return tokens[:n]
}

func (d *driver) LoadModule(ctx Context, image []byte) (Module, error) {
	if len(image) == 0 {
		return 0, plugin.Errorf(plugin.InvalidArgument, "cuModuleLoadData of an empty image")
	}
	// PTX is read up to a zero byte.
	raw := append(append(make([]byte, 0, len(image)+1), image...), 0)
	var m C.sc_handle
	r := C.sc_module_load(C.sc_handle(ctx), unsafe.Pointer(&raw[0]), &m)
	runtime.KeepAlive(raw)
	if r != 0 {
		return 0, d.fail(r, "cuModuleLoadData of %d bytes", len(image))
	}
	return Module(m), nil
}

func (d *driver) UnloadModule(ctx Context, m Module) error {
	if r := C.sc_module_unload(C.sc_handle(ctx), C.sc_handle(m)); r != 0 {
		return d.fail(r, "cuModuleUnload")
	}
	return nil
}

func (d *driver) Function(ctx Context, m Module, name string, maxShared int) (Function, error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	var f C.sc_handle
	if r := C.sc_function(C.sc_handle(ctx), C.sc_handle(m), c, C.int(maxShared), &f); r != 0 {
		return 0, d.fail(r, "loading kernel %s", name)
	}
	return Function(f), nil
}

func (d *driver) LaunchKernels(ctx Context, s Stream, launches []Launch) (int, error) {
	if len(launches) == 0 {
		return 0, nil
	}
	var done C.int
	r := C.sc_launch_all(C.sc_handle(ctx), C.sc_handle(s), (*C.sc_launch)(unsafe.Pointer(&launches[0])), C.int(len(launches)), &done)
	if r != 0 {
		return int(done), d.fail(r, "cuLaunchKernelEx of launch %d of %d", int(done)+1, len(launches))
	}
	return int(done), nil
}
