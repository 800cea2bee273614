package main

/*
#include "internal.h"
*/
import "C"

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// lastError holds the error of the last failed call on a communicator.
type lastError struct {
	mu      sync.Mutex // held for an assignment
	message string
	failure error // of the last call that did not fail by its arguments
}

func (l *lastError) set(err error, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.message = message
	if code := plugin.CodeOf(err); code != plugin.InvalidArgument && code != plugin.Unsupported {
		l.failure = err
	}
}

func (l *lastError) returned() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

func (l *lastError) get() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.message
}

// status ends an export: it is the error's code, with the message left for
// this thread and, if the call was on one, for the communicator c.
func status(c *communicator, err error) C.int32_t {
	if err == nil {
		return 0
	}
	message := err.Error()
	if message != "" {
		// An export runs on the caller's thread, so this is the caller's message.
		C.shunt_set_message((*C.char)(unsafe.Pointer(unsafe.StringData(message))), C.size_t(len(message)))
	} else {
		C.shunt_set_message(nil, 0)
	}
	if c != nil {
		c.last.set(err, message)
	}
	code := plugin.CodeOf(err)
	if code == plugin.OK {
		code = plugin.Internal
	}
	return C.int32_t(code)
}

// recovered turns a panic inside an export into an internal error: nothing may
// unwind into C.
func recovered(result *C.int32_t) {
	if cause := recover(); cause != nil {
		slog.Error("panic in libshunt", "cause", cause, "stack", string(debug.Stack()))
		*result = status(nil, plugin.Errorf(plugin.Internal, "panic in libshunt: %s", fmt.Sprint(cause)))
	}
}

// copyText writes text into a C buffer of capacity bytes, cut to fit where a
// character ends, with a final zero.
func copyText(buffer *C.char, capacity C.uint64_t, text string) {
	if buffer == nil || capacity == 0 {
		return
	}
	n := int(min(uint64(capacity)-1, uint64(len(text))))
	for n > 0 && n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	into := unsafe.Slice((*byte)(unsafe.Pointer(buffer)), n+1)
	copy(into, text[:n])
	into[n] = 0
}

// go_set_error leaves the message of a call that failed before it came to Go with its communicator, if there is one.
// With the name of the call the other ranks are told.
//
//export go_set_error
func go_set_error(number C.uint64_t, code C.int32_t, call, text *C.char, bytes C.uint64_t) {
	c := communicators.get(handle(number))
	if c == nil {
		return
	}
	message := C.GoStringN(text, C.int(bytes))
	c.last.set(plugin.Errorf(plugin.Code(code), "%s", message), message)
	if call != nil {
		name := C.GoString(call)
		c.host.NoteRejection(name, strings.TrimPrefix(message, "shunt_"+name+": "))
	}
}

//export go_last_error
func go_last_error(number C.uint64_t, text *C.char, capacity C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := reachable(handle(number))
	if err != nil {
		return C.int32_t(plugin.CodeOf(err)) // what is asked for is the thread's message, so that stays
	}
	copyText(text, capacity, c.last.get())
	return 0
}
