package cuda

// #include "driver.h"
import "C"

import "unsafe"

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
