package sockets

/*
#cgo CFLAGS: -I${SRCDIR}/../../../plugin
#include <stdlib.h>
#include <string.h>

#include "shunt_ring.h"
#include "shunt_transport.h"

// The commands of an endpoint, posted by native code instead of the host. held are those that are done and whose
// request does not have their end yet.
typedef struct engine {
  shunt_ring *ring;
  uint32_t slots;
  int32_t hasty; // a mutant: requests end before they are done
  uint8_t held[SHUNT_RING_SLOTS];
} engine;

// What a plan's step asks for.
typedef struct order {
  engine *engine;
  int64_t operation;
} order;

static shunt_status start(void *context, const int64_t *args, uint32_t count, const void *send, void *recv, void **request,
                          shunt_native_report *report) {
  const order *o = context;
  engine *e = o->engine;
  shunt_ring_command *commands = shunt_ring_commands(e->ring), *c = NULL;
  uint32_t at = 0;
  for (; at < e->slots && !c; at++)
    if (!e->held[at] && __atomic_load_n(&commands[at].done, __ATOMIC_ACQUIRE) == commands[at].number) c = &commands[at];
  if (!c) {
    strcpy(report->message, "sockets: more requests at a time than the ring has commands");
    return SHUNT_INTERNAL;
  }
  e->held[at - 1] = 1;
  int64_t posted = __atomic_load_n(&e->ring->posted, __ATOMIC_RELAXED);
  __atomic_store_n(&shunt_ring_queue(e->ring, e->slots)[posted % e->slots], at - 1, __ATOMIC_RELAXED);
  c->operation = o->operation;
  c->count = count;
  memcpy(c->args, args, count * sizeof *args);
  c->status = SHUNT_OK;
  __atomic_store_n(&c->peer, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&c->number, posted + 1, __ATOMIC_RELAXED);
  // release: the engine sees the command, and what the plan has copied for it
  __atomic_store_n(&e->ring->posted, posted + 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&e->ring->sleeping, __ATOMIC_SEQ_CST)) {
    __atomic_fetch_add(&e->ring->doorbell, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &e->ring->doorbell, FUTEX_WAKE, 1, NULL, NULL, 0);
  }
  *request = c;
  return SHUNT_PENDING;
}

static shunt_status poll(void *context, void *request, int32_t stop, shunt_native_report *report) {
  engine *e = ((const order *)context)->engine;
  shunt_ring_command *c = request;
  // acquire: what the engine wrote before it was done is visible after
  int done = __atomic_load_n(&c->done, __ATOMIC_ACQUIRE) == c->number;
  report->peer = __atomic_load_n(&c->peer, __ATOMIC_RELAXED);
  // The engine works on staging memory: the caller's is free at any time.
  if (!done && !stop && !e->hasty) return SHUNT_PENDING;
  e->held[c - shunt_ring_commands(e->ring)] = 0;
  if (!done) return stop ? SHUNT_ABORTED : SHUNT_OK;
  memcpy(report->message, c->message, SHUNT_NATIVE_TEXT - 1);
  return c->status;
}

static volatile int64_t looked;

// overread is the flaw of that name: it looks at whole lines of the caller's memory.
static shunt_status overread(void *context, const int64_t *args, uint32_t count, const void *send, void *recv,
                             void **request, shunt_native_report *report) {
  int64_t sum = 0;
  for (int64_t i = 0; send && i < (args[0] + 63) / 64 * 64; i++) sum += ((const char *)send)[i];
  looked = sum;
  return SHUNT_OK;
}

static uintptr_t overreader(void) { return (uintptr_t)overread; }
static uintptr_t starter(void) { return (uintptr_t)start; }
static uintptr_t poller(void) { return (uintptr_t)poll; }
*/
import "C"

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// native posts commands in native steps: start puts one into the ring, poll looks whether
// it is done. It is the other way to an engine, in the builtin and shared carriers, which
// the option steps chooses; the engine behind it is the same.
type native struct {
	engine *C.engine
	orders map[int64]*C.order
}

func newNative(ring unsafe.Pointer, slots int, hasty bool) *native {
	e := (*C.engine)(C.calloc(1, C.sizeof_engine))
	e.ring, e.slots = (*C.shunt_ring)(ring), C.uint32_t(slots)
	if hasty {
		e.hasty = 1
	}
	return &native{engine: e, orders: map[int64]*C.order{}}
}

// post writes the step that posts a command and waits until it is done.
func (n *native) post(b *plugin.Builder, operation int64, args ...plugin.Reg) {
	o := n.orders[operation]
	if o == nil {
		o = (*C.order)(C.calloc(1, C.sizeof_order))
		o.engine, o.operation = n.engine, C.int64_t(operation)
		n.orders[operation] = o
	}
	b.Native(plugin.Native{Start: uintptr(C.starter()), Poll: uintptr(C.poller()), Context: uintptr(unsafe.Pointer(o))},
		args...)
}

// overread writes the step that reads past the end of send memory.
func (n *native) overread(b *plugin.Builder, bytes plugin.Reg) {
	b.Native(plugin.Native{Start: uintptr(C.overreader()), Poll: uintptr(C.poller())}, bytes)
}

func (n *native) free() {
	for _, o := range n.orders {
		C.free(unsafe.Pointer(o))
	}
	C.free(unsafe.Pointer(n.engine))
}
