package main

/*
#include "internal.h"
*/
import "C"

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/option"
	"github.com/shunt-ccl/shunt/internal/descriptors"
	"github.com/shunt-ccl/shunt/plugin"
)

// communicator is the object behind a shunt_comm.
type communicator struct {
	host *host.Communicator
	rank int
	// world is kept here because the collectives need it for the length of
	// the caller's arrays.
	world int
	last  lastError
	// limited is the time in nanoseconds after which a call is left pending;
	// 0: none.
	limited atomic.Int64
	// cancel ends splits and the like when it becomes other than 0; nil: nothing does.
	cancel atomic.Pointer[int32]
}

var communicators = table[communicator]{kind: kindComm, what: "communicator"}

// closing are the communicators whose go_close waits for operations, by the handles that they had.
var closing = struct {
	sync.Mutex
	communicators map[handle]*communicator
}{communicators: map[handle]*communicator{}}

// reachable finds a communicator also while it is being closed: for calls that ask about what hangs, or end it.
func reachable(h handle) (*communicator, error) {
	if c := communicators.get(h); c != nil {
		return c, nil
	}
	closing.Lock()
	defer closing.Unlock()
	if c := closing.communicators[h]; c != nil {
		return c, nil
	}
	return nil, communicators.unknown(h)
}

// retire takes a communicator's handle out of use, but for reachable until closed is called.
func retire(h handle) (c *communicator, closed func(), err error) {
	closing.Lock()
	defer closing.Unlock()
	if c, err = communicators.remove(h); err != nil {
		return nil, nil, err
	}
	closing.communicators[h] = c
	return c, func() {
		closing.Lock()
		defer closing.Unlock()
		delete(closing.communicators, h)
	}, nil
}

// adopt gives a communicator of the host a handle.
func adopt(c *host.Communicator, number *C.uint64_t) error {
	h, err := communicators.add(&communicator{host: c, rank: c.Rank(), world: c.World()})
	if err != nil {
		_ = c.Close() // the error that matters is that there is no handle
		return err
	}
	*number = C.uint64_t(h)
	return nil
}

//export go_get_unique_id
func go_get_unique_id(text *C.char, capacity C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	// The store behind the id ends with the communicator that is made of it.
	id, root, err := bootstrap.NewID("")
	if err != nil {
		return status(nil, err)
	}
	if name := id.String(); uint64(len(name)) < uint64(capacity) {
		copyText(text, capacity, name)
		return 0
	}
	root.Close() // no rank can get the id any more
	return status(nil, plugin.Errorf(plugin.InvalidArgument,
		"shunt_get_unique_id: the id takes %d bytes, capacity is %d; want SHUNT_UNIQUE_ID_BYTES", len(id.String())+1,
		uint64(capacity)))
}

//export go_comm_init
func go_comm_init(given *C.shunt_options, number *C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	if err := descriptors.Ready(); err != nil { // before anything waits
		return status(nil, err)
	}
	options, err := optionsOf(given)
	if err != nil {
		return status(nil, err)
	}
	ctx, cancel := untilGivenUp((*int32)(given.cancel))
	defer cancel()
	c, err := host.Init(ctx, options)
	if err != nil {
		return status(nil, err)
	}
	return status(nil, adopt(c, number))
}

// longest is the most bytes of a text of the caller's that are looked at.
const longest = 1 << 16

// textOf copies a C string that must end within longest bytes.
func textOf(what string, text *C.char) (string, error) {
	if text == nil {
		return "", nil
	}
	for n := range longest {
		if *(*byte)(unsafe.Add(unsafe.Pointer(text), n)) == 0 {
			return C.GoStringN(text, C.int(n)), nil
		}
	}
	return "", plugin.Errorf(plugin.InvalidArgument, "%s does not end within %d bytes", what, longest)
}

func optionsOf(given *C.shunt_options) (host.Options, error) {
	var options host.Options
	var err error
	if options.ID, err = textOf("shunt_options.id", given.id); err != nil {
		return options, err
	}
	transports, err := textOf("shunt_options.transports", given.transports)
	if err != nil {
		return options, err
	}
	options.Transports = option.SplitList(transports)
	options.Rank, options.World = int(given.rank), int(given.world)
	if options.World < 0 {
		return options, plugin.Errorf(plugin.InvalidArgument,
			"shunt_options.world is %d; want 0 (environment) or the number of ranks", options.World)
	}
	if given.timeout_ms < 0 || int64(given.timeout_ms) > math.MaxInt64/int64(time.Millisecond) {
		return options, plugin.Errorf(plugin.InvalidArgument,
			"shunt_options.timeout_ms is %d; want 0 (SHUNT_TIMEOUT) or milliseconds", int64(given.timeout_ms))
	}
	options.Timeout = time.Duration(given.timeout_ms) * time.Millisecond
	if given.max_sms < 0 {
		return options, plugin.Errorf(plugin.InvalidArgument,
			"shunt_options.max_sms is %d; want 0 (SHUNT_MAX_SMS) or a number of multiprocessors", int32(given.max_sms))
	}
	options.MaxSMs = int(given.max_sms)
	if err := cancelAt("shunt_options.cancel", given.cancel); err != nil {
		return options, err
	}
	options.Device = int(given.device)
	options.Memory = plugin.MemoryKind(given.memory)
	label, err := textOf("shunt_options.label", given.label)
	options.Logger = logger
	if label != "" {
		options.Logger = logger.With("label", label)
	}
	return options, err
}

//export go_rank
func go_rank(number C.uint64_t, rank *C.int32_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	*rank = C.int32_t(c.rank)
	return 0
}

//export go_world
func go_world(number C.uint64_t, world *C.int32_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	*world = C.int32_t(c.world)
	return 0
}

//export go_split
func go_split(number C.uint64_t, color, key C.int32_t, split *C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	ctx, cancel := untilGivenUp(c.cancel.Load())
	defer cancel()
	part, err := c.host.Split(ctx, int(color), int(key))
	if err != nil || part == nil {
		return status(c, err)
	}
	return status(c, adopt(part, split))
}

//export go_shrink
func go_shrink(number C.uint64_t, shrunk *C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	ctx, cancel := untilGivenUp(c.cancel.Load())
	defer cancel()
	rest, err := c.host.Shrink(ctx)
	if err != nil {
		return status(c, err)
	}
	return status(c, adopt(rest, shrunk))
}

//export go_subset
func go_subset(number C.uint64_t, given *C.int32_t, count C.int32_t, subset *C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	ranks := make([]int, count)
	for i, rank := range unsafe.Slice((*int32)(unsafe.Pointer(given)), count) {
		ranks[i] = int(rank)
	}
	ctx, cancel := untilGivenUp(c.cancel.Load())
	defer cancel()
	part, err := c.host.Subset(ctx, ranks)
	if err != nil {
		return status(c, err)
	}
	return status(c, adopt(part, subset))
}

//export go_exchange
func go_exchange(number C.uint64_t, send unsafe.Pointer, bytes C.int64_t, recv unsafe.Pointer) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	if int64(bytes) > host.MaxExchange {
		return status(c, c.reject("exchange", "bytes is %d; want at most %d", int64(bytes), host.MaxExchange))
	}
	ctx, cancel := untilGivenUp(c.cancel.Load())
	defer cancel()
	parts, err := c.host.Exchange(ctx, C.GoBytes(send, C.int(bytes))) // which a store that moves may read later
	if err != nil {
		return status(c, err)
	}
	for rank, part := range parts {
		copy(unsafe.Slice((*byte)(unsafe.Add(recv, rank*int(bytes))), bytes), part)
	}
	return 0
}

//export go_note_refusal
func go_note_refusal(number C.uint64_t, call, why *C.char) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	name, err := textOf("call", call)
	if err != nil {
		return status(c, err)
	}
	reason, err := textOf("why", why)
	if err != nil {
		return status(c, err)
	}
	c.host.NoteRejection(name, reason)
	return 0
}

//export go_abort
func go_abort(number C.uint64_t, reason *C.char) (result C.int32_t) {
	defer recovered(&result)
	c, err := reachable(handle(number))
	if err != nil {
		return status(nil, err)
	}
	text, err := textOf("reason", reason)
	if err != nil { // the abort matters more than how it ends
		text = C.GoStringN(reason, 1024)
	}
	c.host.Abort(text)
	return 0
}

//export go_set_timeout
func go_set_timeout(number C.uint64_t, milliseconds C.int64_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := reachable(handle(number))
	if err != nil {
		return status(nil, err)
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	return status(c, c.host.SetTimeout(time.Duration(max(min(int64(milliseconds), most), -most))*time.Millisecond))
}

//export go_close
func go_close(number C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	c, closed, err := retire(handle(number))
	if err != nil {
		return status(nil, err)
	}
	defer closed()
	err = news(c.host.Close(), c.last.returned())
	windows.removeIf(func(w *window) bool { return w.comm == c })
	requests.removeIf(func(r *request) bool { return r.comm == c && !r.pending })
	return status(nil, err)
}

//export go_explain
func go_explain(number C.uint64_t, collective, dtype, op C.uint32_t, count C.int64_t, text *C.char, capacity C.uint64_t,
	needed *C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	size := plugin.DType(dtype).Bytes()
	if count < 0 || (size > 0 && int64(count) > math.MaxInt64/size) {
		return status(c, plugin.Errorf(plugin.InvalidArgument, "explain: count %d is negative or overflows", int64(count)))
	}
	choice, err := c.host.Explain(plugin.Collective(collective), plugin.DType(dtype), plugin.Op(op), int64(count)*size)
	if err != nil {
		return status(c, err)
	}
	explanation := choice.String()
	copyText(text, capacity, explanation)
	*needed = C.uint64_t(len(explanation) + 1)
	return 0
}
