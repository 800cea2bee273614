package nativetest

/*
#include <stdlib.h>

#include "shunt_ring.h"

// Sleeps so long that a command whose bell is not heard is late for every deadline.
static shunt_ring_command *next(void *ring, uint32_t slots, int64_t *taken) {
  return shunt_ring_next(ring, slots, taken, INT64_C(3600000000000));
}

static void mark_done(shunt_ring *ring, int slot, int64_t number) { shunt_ring_commands(ring)[slot].done = number; }

static int64_t done_in(shunt_ring *ring, int slot) {
  return __atomic_load_n(&shunt_ring_commands(ring)[slot].done, __ATOMIC_ACQUIRE);
}

static int asleep(shunt_ring *ring) { return __atomic_load_n(&ring->sleeping, __ATOMIC_ACQUIRE) != 0; }

static void wake(shunt_ring *ring) {
  __atomic_fetch_add(&ring->doorbell, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, &ring->doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void waits_for(shunt_ring_command *c, int32_t rank) { __atomic_store_n(&c->peer, rank + 1, __ATOMIC_RELAXED); }

static void done(void *ring, shunt_ring_command *c, int32_t status, int32_t peer, const char *message) {
  shunt_ring_done(ring, c, status, peer, message);
}
*/
import "C"

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// Command is a command of a ring that C serves.
type Command struct {
	Operation int64
	Args      []int64
	c         *C.shunt_ring_command
}

// WaitsFor says which rank the command waits for.
func (c *Command) WaitsFor(rank int) { C.waits_for(c.c, C.int32_t(rank)) }

// ServeRing serves a ring by the functions of shunt_ring.h, each command on a goroutine of its own, until stop is
// called, which waits for the commands in progress. What do returns ends a command, as of package ring.
func ServeRing(ring unsafe.Pointer, slots int, do func(*Command) error) (stop func()) {
	var over atomic.Bool
	var running sync.WaitGroup
	running.Go(func() {
		taken := (*C.int64_t)(C.calloc(1, C.sizeof_int64_t))
		defer C.free(unsafe.Pointer(taken))
		for !over.Load() {
			c := C.next(ring, C.uint32_t(slots), taken)
			if c == nil {
				continue
			}
			args := make([]int64, c.count)
			for i := range args {
				args[i] = int64(c.args[i])
			}
			running.Go(func() { end(ring, c, do(&Command{int64(c.operation), args, c})) })
		}
	})
	return func() {
		over.Store(true)
		ended := make(chan struct{})
		go func() {
			running.Wait()
			close(ended)
		}()
		for { // it may have looked at over before, and sleep from now on
			C.wake((*C.shunt_ring)(ring))
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}
}

// MarkDone writes what a plugin says has been done in a slot of a ring.
func MarkDone(ring unsafe.Pointer, slot int, number int64) {
	C.mark_done((*C.shunt_ring)(ring), C.int(slot), C.int64_t(number))
}

// DoneIn returns the number of the command that was done last in a slot of a ring.
func DoneIn(ring unsafe.Pointer, slot int) int64 {
	return int64(C.done_in((*C.shunt_ring)(ring), C.int(slot)))
}

// Asleep reports whether the plugin's side of a ring sleeps, or is about to.
func Asleep(ring unsafe.Pointer) bool { return C.asleep((*C.shunt_ring)(ring)) != 0 }

func end(ring unsafe.Pointer, c *C.shunt_ring_command, err error) {
	if err == nil {
		C.done(ring, c, C.int32_t(plugin.OK), -1, nil)
		return
	}
	rank := int32(-1)
	var e *plugin.Error
	if errors.As(err, &e) {
		rank = int32(e.Rank)
	}
	text := C.CString(err.Error())
	defer C.free(unsafe.Pointer(text))
	C.done(ring, c, C.int32_t(plugin.CodeOf(err)), C.int32_t(rank), text)
}
