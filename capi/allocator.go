package main

/*
#include "internal.h"
*/
import "C"

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// allocator is the object behind a shunt_allocator. Its communicator may be closed.
type allocator struct {
	host *host.Allocator
	comm *communicator
}

var allocators = table[allocator]{kind: kindAllocator, what: "allocator"}

// onAllocator runs a call on the allocator of a handle.
func onAllocator(number C.uint64_t, f func(*host.Allocator) error) C.int32_t {
	a, err := allocators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	return status(a.comm, f(a.host))
}

//export go_allocator_create
func go_allocator_create(number C.uint64_t, symmetric C.int32_t, segment C.int64_t,
	out *C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	a, err := c.host.NewAllocator(host.AllocatorOptions{Symmetric: symmetric != 0, SegmentBytes: int64(segment)})
	if err != nil {
		return status(c, err)
	}
	h, err := allocators.add(&allocator{host: a, comm: c})
	if err != nil {
		_ = a.Destroy() // the error that matters is that there is no handle
		return status(c, err)
	}
	*out = C.uint64_t(h)
	return 0
}

//export go_allocator_alloc
func go_allocator_alloc(number C.uint64_t, bytes C.int64_t, at unsafe.Pointer,
	memory *unsafe.Pointer) (result C.int32_t) {
	defer recovered(&result)
	return onAllocator(number, func(a *host.Allocator) (err error) {
		*memory, err = a.Alloc(int64(bytes), stream{at})
		return err
	})
}

//export go_allocator_free
func go_allocator_free(number C.uint64_t, memory, at unsafe.Pointer) (result C.int32_t) {
	defer recovered(&result)
	return onAllocator(number, func(a *host.Allocator) error { return a.Free(memory, stream{at}) })
}

//export go_allocator_record_stream
func go_allocator_record_stream(number C.uint64_t, memory, at unsafe.Pointer) (result C.int32_t) {
	defer recovered(&result)
	return onAllocator(number, func(a *host.Allocator) error { return a.RecordStream(memory, stream{at}) })
}

//export go_allocator_reserve
func go_allocator_reserve(number C.uint64_t, bytes C.int64_t) (result C.int32_t) {
	defer recovered(&result)
	return onAllocator(number, func(a *host.Allocator) error { return a.Reserve(int64(bytes)) })
}

//export go_allocator_trim
func go_allocator_trim(number C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	return onAllocator(number, (*host.Allocator).Trim)
}

//export go_allocator_get_stats
func go_allocator_get_stats(number C.uint64_t, stats *C.shunt_allocator_stats) (result C.int32_t) {
	defer recovered(&result)
	return onAllocator(number, func(a *host.Allocator) error {
		s := a.Stats()
		stats.in_use, stats.cached, stats.peak = C.int64_t(s.InUse), C.int64_t(s.Cached), C.int64_t(s.Peak)
		stats.blocks, stats.segments = C.int64_t(s.Blocks), C.int64_t(s.Segments)
		return nil
	})
}

//export go_allocator_device
func go_allocator_device(number C.uint64_t, device *C.int32_t) (result C.int32_t) {
	defer recovered(&result)
	return onAllocator(number, func(a *host.Allocator) error {
		*device = C.int32_t(a.Device())
		return nil
	})
}

//export go_allocator_destroy
func go_allocator_destroy(number C.uint64_t, gone *C.int32_t) (result C.int32_t) {
	defer recovered(&result)
	return onAllocator(number, func(a *host.Allocator) error {
		err := a.Destroy()
		if code := plugin.CodeOf(err); code != plugin.InvalidArgument && code != plugin.Timeout {
			*gone = 1
			_, _ = allocators.remove(handle(number)) // another thread may have destroyed it
		}
		return err
	})
}
