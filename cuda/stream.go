package cuda

// #include "driver.h"
import "C"

import "github.com/shunt-ccl/shunt/plugin"

func (d *driver) NewStream(ctx Context, priority int) (Stream, error) {
	var s C.sc_handle
	if r := C.sc_stream_create(C.sc_handle(ctx), C.int(priority), &s); r != 0 {
		return 0, d.fail(r, "cuStreamCreateWithPriority")
	}
	return Stream(s), nil
}

func (d *driver) StreamPriority(ctx Context, s Stream) (int, error) {
	var priority C.int
	if r := C.sc_stream_priority(C.sc_handle(ctx), C.sc_handle(s), &priority); r != 0 {
		return 0, d.fail(r, "cuStreamGetPriority")
	}
	return int(priority), nil
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
		return plugin.Errorf(plugin.InvalidArgument, "cuMemcpyAsync got %d bytes, want 0 or more", bytes)
	}
	if r := C.sc_copy(C.sc_handle(ctx), C.sc_ptr(to), C.sc_ptr(from), C.uint64_t(bytes), C.sc_handle(s)); r != 0 {
		return d.fail(r, "cuMemcpyAsync of %d bytes from %#x to %#x", bytes, uint64(from), uint64(to))
	}
	return nil
}

func (d *driver) Set(ctx Context, to Ptr, value byte, bytes int64, s Stream) error {
	if bytes < 0 {
		return plugin.Errorf(plugin.InvalidArgument, "cuMemsetD8Async got %d bytes, want 0 or more", bytes)
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

func (d *driver) RecordContext(ctx Context, e Event) error {
	if r := C.sc_event_record_context(C.sc_handle(ctx), C.sc_handle(e)); r != 0 {
		return d.fail(r, "cuCtxRecordEvent")
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
