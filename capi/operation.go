package main

/*
#include "internal.h"
*/
import "C"

import (
	"sync"
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// stream is a CUstream of the caller's.
type stream struct{ pointer unsafe.Pointer }

// Handle returns the CUstream.
func (s stream) Handle() unsafe.Pointer { return s.pointer }

// pool holds operations for the blocking calls, so that they allocate nothing.
var pool = sync.Pool{New: func() any { return new(host.Operation) }}

//export go_run
func go_run(number C.uint64_t, given *C.shunt_operation) (result C.int32_t) {
	defer recovered(&result)
	c := communicators.get(handle(number))
	if c == nil {
		return status(nil, communicators.unknown(handle(number)))
	}
	op := pool.Get().(*host.Operation)
	err := c.translate(given, op)
	var request *host.Request
	if err == nil {
		request, err = c.host.DoFor(op, c.blockLimit())
	}
	*op = host.Operation{} // the pool must not keep the caller's memory
	pool.Put(op)
	if request != nil {
		return c.pending(number, request)
	}
	if err == nil {
		return 0
	}
	return status(c, err)
}

//export go_synchronize
func go_synchronize(number C.uint64_t, given unsafe.Pointer) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	going, err := c.host.SynchronizeFor(stream{given}, c.blockLimit())
	if going != nil {
		return c.pending(number, going)
	}
	return status(c, err)
}

//export go_run_group
func go_run_group(number C.uint64_t, given *C.shunt_operation, count C.int64_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	var group host.Group
	operations := unsafe.Slice(given, count)
	for i := range operations {
		var op host.Operation
		if err := c.translate(&operations[i], &op); err != nil {
			return status(c, err)
		}
		group.Add(op)
	}
	going, err := group.RunFor(c.host, c.blockLimit())
	if going != nil {
		return c.pending(number, going)
	}
	return status(c, err)
}

//export go_run_together
func go_run_together(numbers *C.uint64_t, given *C.shunt_operation, count C.int64_t) (result C.int32_t) {
	defer recovered(&result)
	parts := make([]host.Part, count)
	comms := map[*communicator]bool{}
	for i := range parts {
		c, err := communicators.find(handle(unsafe.Slice(numbers, count)[i]))
		if err != nil {
			return status(nil, err)
		}
		comms[c] = true
		var op host.Operation
		if err := c.translate(&unsafe.Slice(given, count)[i], &op); err != nil {
			return status(c, err)
		}
		parts[i] = host.Part{Comm: c.host, Operations: []host.Operation{op}}
	}
	err := host.RunTogether(parts...)
	for c := range comms {
		result = status(c, err)
	}
	return result
}

// translate writes what C gave as an operation of the host. Memory and arrays
// stay the caller's; the host checks everything that is in them.
func (c *communicator) translate(given *C.shunt_operation, op *host.Operation) error {
	*op = host.Operation{
		Collective: plugin.Collective(given.collective),
		DType:      plugin.DType(given.dtype),
		Op:         plugin.Op(given.op),
		Scalar:     float64(given.scalar),
		Send:       given.send,
		Recv:       given.recv,
		Count:      int64(given.count),
		Root:       int(given.root),
		Offset:     int64(given.offset),
	}
	if given.stream != nil {
		op.Stream = stream{given.stream}
	}
	if given.counts_on_device != 0 && op.Collective.Valid() {
		return c.countsOnDevice(given, op)
	}
	switch op.Collective {
	case plugin.AllGatherV:
		op.RecvCounts, op.RecvDispls = c.array(given.recv_counts), c.array(given.recv_displs)
		if op.RecvCounts != nil {
			op.Count = op.RecvCounts[c.rank]
		}
	case plugin.ReduceScatterV:
		op.SendCounts, op.SendDispls = c.array(given.send_counts), c.array(given.send_displs)
		if op.SendCounts != nil {
			op.Count = op.SendCounts[c.rank]
		}
	case plugin.AllToAllV:
		op.SendCounts, op.SendDispls = c.array(given.send_counts), c.array(given.send_displs)
		op.RecvCounts, op.RecvDispls = c.array(given.recv_counts), c.array(given.recv_displs)
	case plugin.GatherV:
		if op.Root == c.rank {
			op.RecvCounts, op.RecvDispls = c.array(given.recv_counts), c.array(given.recv_displs)
		}
	case plugin.ScatterV:
		if op.Root == c.rank {
			op.SendCounts, op.SendDispls = c.array(given.send_counts), c.array(given.send_displs)
		}
	case plugin.Put, plugin.Get, plugin.Signal, plugin.Wait:
		h := handle(uintptr(unsafe.Pointer(given.window)))
		w, err := windows.find(h)
		if err != nil {
			return c.reject(op.Collective.String(), "%w", err)
		}
		op.Window = w.host
	}
	return nil
}

// countsOnDevice translates counts in device memory: addresses that are never
// dereferenced here.
func (c *communicator) countsOnDevice(given *C.shunt_operation, op *host.Operation) error {
	if op.Collective != plugin.AllToAllV {
		// Said here, as the host does not look at what a collective has no use for.
		return c.reject(op.Collective.String(), "only all_to_all_v takes counts in device memory")
	}
	op.DeviceCounts = host.DeviceCounts{
		SendCounts: unsafe.Pointer(given.send_counts), SendDispls: unsafe.Pointer(given.send_displs),
		RecvCounts: unsafe.Pointer(given.recv_counts), RecvDispls: unsafe.Pointer(given.recv_displs),
		SendCapacity: int64(given.send_capacity), RecvCapacity: int64(given.recv_capacity),
	}
	if op.DeviceCounts == (host.DeviceCounts{}) {
		// To the host that means counts of the host's. With a capacity it sees
		// which ones are missing, and refuses them.
		op.DeviceCounts.SendCapacity = 1
	}
	return nil
}

// reject returns the error of a call with wrong arguments, of which the other ranks are told.
func (c *communicator) reject(call, format string, args ...any) error {
	err := plugin.Errorf(plugin.InvalidArgument, "%s on rank %d: "+format, append([]any{call, c.rank}, args...)...)
	c.host.NoteRejection(call, err.Error())
	return err
}

// noMemory bounds the addresses at which there is none, such as that of a member of a null structure.
const noMemory = 4096

// array returns a caller's array of one entry for each rank; nil for null, and for an address at which there is no
// memory.
func (c *communicator) array(p *C.int64_t) []int64 {
	if uintptr(unsafe.Pointer(p)) < noMemory {
		return nil
	}
	return unsafe.Slice((*int64)(unsafe.Pointer(p)), c.world)
}
