package main

/*
#include "internal.h"
*/
import "C"

import (
	"context"
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// blockLimit returns the longest time that a call on the communicator may block; 0: any time.
func (c *communicator) blockLimit() time.Duration { return time.Duration(c.limited.Load()) }

// pending ends a call whose operation continues. The thread finds it again in
// pending.c.
func (c *communicator) pending(number C.uint64_t, going *host.Request) C.int32_t {
	if h, err := requests.add(&request{host: going, comm: c, pending: true}); err == nil {
		if C.shunt_keep_pending(number, C.uint64_t(h)) != 0 {
			return C.SHUNT_PENDING
		}
		_, _ = requests.remove(h) // ours alone so far
	}
	return status(c, going.Wait(context.Background()))
}

//export go_set_block_limit
func go_set_block_limit(number C.uint64_t, milliseconds C.int64_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	c.limited.Store(min(int64(milliseconds), math.MaxInt64/int64(time.Millisecond)) * int64(time.Millisecond))
	return 0
}

//export go_set_cancel
func go_set_cancel(number C.uint64_t, cancel *C.int32_t) (result C.int32_t) {
	defer recovered(&result)
	c, err := communicators.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	if err := cancelAt("shunt_set_cancel: cancel", cancel); err != nil {
		return status(c, err)
	}
	c.cancel.Store((*int32)(cancel))
	return 0
}

// cancelAt refuses an address at which no word can be: it is read where no error could be returned.
func cancelAt(what string, word *C.int32_t) error {
	if at := uintptr(unsafe.Pointer(word)); at != 0 && (at < noMemory || at%4 != 0) {
		return plugin.Errorf(plugin.InvalidArgument, "%s is %#x; want null or the address of a word", what, at)
	}
	return nil
}

//export go_continue
func go_continue(number C.uint64_t) (result C.int32_t) {
	defer recovered(&result)
	r, err := requests.find(handle(number))
	if err != nil {
		return status(nil, err)
	}
	if limit := r.comm.blockLimit(); limit > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_ = r.host.Wait(ctx) // how it ended is returned below
		if ended, _ := r.host.Test(); !ended {
			return C.SHUNT_PENDING
		}
	}
	return go_request_wait(number)
}

// untilGivenUp returns a context that ends soon after the word has become other than
// 0. A null word never does.
func untilGivenUp(word *int32) (context.Context, context.CancelFunc) {
	if word == nil {
		return context.Background(), func() {}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	looking := make(chan struct{})
	go func() {
		defer close(looking)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for atomic.LoadInt32(word) == 0 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		cancel(plugin.Errorf(plugin.Aborted, "its cancel word is set"))
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-looking // the word is the caller's again
	}
}
