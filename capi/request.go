package main

/*
#include "internal.h"
*/
import "C"

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// request is the object behind a shunt_request.
type request struct {
	host *host.Request
	comm *communicator
	// pending: a call's, whose thread comes back for its end, also after the
	// communicator is closed
	pending bool
}

var requests = table[request]{kind: kindRequest, what: "request"}

//export go_start
func go_start(number C.uint64_t, given *C.shunt_operation, out *C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	var op host.Operation
	if err := c.translate(given, &op); err != nil {
		return status(c, err)
	}
	r := &request{comm: c}
	h, err := requests.add(r)
	if err != nil {
		return status(c, err)
	}
	if r.host, err = c.host.Start(&op); err != nil {
		_, _ = requests.remove(h) // ours alone so far
		return status(c, err)
	}
	*out = C.uint64_t(h)
	return 0
}

//export go_request_test
func go_request_test(number C.uint64_t, timeoutMS C.int64_t, done *C.int32_t) (result C.int32_t) {
	defer recovered(&result)
	r, err := requests.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	if timeoutMS > 0 {
		// A longer wait than a Duration can say is cut to the longest.
		timeout := time.Duration(min(int64(timeoutMS), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		select {
		case <-r.host.Done(): // how the operation ended is for wait or close to say
		case <-time.After(timeout):
		}
	}
	select {
	case <-r.host.Done():
		*done = 1
	default:
	}
	return 0
}

//export go_request_notify
func go_request_notify(number C.uint64_t, eventfd C.int32_t) (result C.int32_t) {
	defer recovered(&result)
	r, err := requests.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	own, err := unix.FcntlInt(uintptr(eventfd), unix.F_DUPFD_CLOEXEC, 3) // no standard stream
	if err != nil {
		code := plugin.OutOfMemory
		if errors.Is(err, unix.EBADF) {
			code = plugin.InvalidArgument
		}
		return status(nil, plugin.Errorf(code, "shunt_request_notify: descriptor %d: %w", eventfd, err))
	}
	go func() {
		<-r.host.Done() // how the operation ended is for wait or close to say
		_, _ = unix.Write(own, binary.NativeEndian.AppendUint64(nil, 1))
		_ = unix.Close(own)
	}()
	return 0
}

//export go_request_wait
func go_request_wait(number C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	r, err := requests.remove(handle(number))
	if err != nil {
		return status(nil, err)
	}
	return status(r.comm, r.host.Wait(context.Background()))
}
