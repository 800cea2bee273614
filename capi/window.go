package main

/*
#include "internal.h"
*/
import "C"

import (
	"context"
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
)

// window is the object behind a shunt_window.
type window struct {
	host *host.Window
	comm *communicator
}

var windows = table[window]{kind: kindWindow, what: "window"}

//export go_window_create
func go_window_create(number C.uint64_t, bytes C.int64_t, out *C.uint64_t, base *unsafe.Pointer) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	w, err := c.host.NewWindow(context.Background(), int64(bytes))
	if err != nil {
		return status(c, err)
	}
	return c.handOut(w, out, base)
}

//export go_window_at
func go_window_at(number C.uint64_t, memory unsafe.Pointer, bytes C.int64_t, out *C.uint64_t,
	base *unsafe.Pointer) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	w, err := c.host.NewWindowAt(memory, int64(bytes))
	if err != nil {
		return status(c, err)
	}
	return c.handOut(w, out, base)
}

// handOut gives a new window to the program.
func (c *communicator) handOut(w *host.Window, out *C.uint64_t, base *unsafe.Pointer) C.int32_t {
	h, err := windows.add(&window{host: w, comm: c})
	if err != nil {
		_ = w.Close() // the error that matters is that there is no handle
		return status(c, err)
	}
	*out, *base = C.uint64_t(h), w.Local()
	return 0
}

//export go_window_free
func go_window_free(number C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	w, err := windows.remove(handle(number))
	if err != nil {
		return status(nil, err)
	}
	return status(w.comm, news(w.host.Close(), w.comm.last.returned()))
}
