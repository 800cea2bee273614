// Package nativetest holds C functions for tests of native steps, and the C side of
// command rings, because test files cannot use cgo. It is linked into tests alone.
package nativetest

/*
#cgo CFLAGS: -I${SRCDIR}/../../../../plugin
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shunt_transport.h"

typedef struct nt_seen {
  int64_t calls, registers[64];
  const void *send;
  void *recv;
  int32_t result;
} nt_seen;

static int32_t record(void *context, const int64_t *registers, const void *send, void *recv, void *stream, shunt_native_report *report) {
  nt_seen *seen = context;
  if (stream) return 15;
  seen->calls++;
  for (int i = 0; i < 64 && i < registers[0]; i++) seen->registers[i] = registers[i];
  seen->send = send;
  seen->recv = recv;
  return seen->result;
}

static uintptr_t function(void) { return (uintptr_t)record; }

typedef struct nt_stuck {
  _Atomic int32_t entered, release, left;
} nt_stuck;

static int32_t hold(void *context, const int64_t *registers, const void *send, void *recv, void *stream, shunt_native_report *report) {
  nt_stuck *s = context;
  s->entered = 1;
  while (!s->release) usleep(1000);
  volatile int64_t seen = registers[0]; // still there, also for a run that is over
  (void)seen, (void)send, (void)recv, (void)stream, (void)report;
  s->left = 1;
  return 0;
}

static uintptr_t holder(void) { return (uintptr_t)hold; }
static int32_t entered(nt_stuck *s) { return s->entered; }
static int32_t left(nt_stuck *s) { return s->left; }
static void let(nt_stuck *s) { s->release = 1; }

// A request ends after some polls, or when another one has been started; it copies then.
typedef struct nt_engine {
  const char *send;
  char *recv;
  int64_t bytes, polls, until, starts, stops, after;
  int32_t status, peer, deaf;
  const char *text;
} nt_engine;

typedef struct nt_request {
  nt_engine *engine;
  const void *send;
  void *recv;
  int64_t bytes;
} nt_request;

static int32_t start(void *context, const int64_t *args, uint32_t count, const void *send, void *recv, void **request, shunt_native_report *report) {
  nt_engine *e = context;
  nt_request *r = malloc(sizeof *r);
  *r = (nt_request){e, send, recv, count ? args[0] : 0};
  *request = r;
  report->peer = e->peer;
  e->starts++;
  return SHUNT_PENDING;
}

static int32_t poll(void *context, void *request, int32_t stop, shunt_native_report *report) {
  nt_engine *e = context;
  nt_request *r = request;
  if (stop) {
    e->stops++;
    if (e->deaf) return SHUNT_PENDING;
    free(r);
    return SHUNT_ABORTED;
  }
  if (++e->polls < e->until || e->starts < e->after) return SHUNT_PENDING;
  if (e->status) snprintf(report->message, sizeof report->message, "%s", e->text);
  else memcpy(r->recv, r->send, (size_t)r->bytes);
  free(r);
  return e->status;
}

static uintptr_t starter(void) { return (uintptr_t)start; }
static uintptr_t poller(void) { return (uintptr_t)poll; }
*/
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// Seen holds the arguments that the function saw.
type Seen struct {
	pinner runtime.Pinner
	c      *C.nt_seen
}

// New makes a native whose function notes its arguments and returns the code result.
// Register 0, the count slot, is the number of registers to note, at most 64.
func New(result plugin.Code) (plugin.Native, *Seen) {
	s := &Seen{c: &C.nt_seen{result: C.int32_t(result)}}
	s.pinner.Pin(s.c)
	return plugin.Native{Function: uintptr(C.function()), Context: uintptr(unsafe.Pointer(s.c))}, s
}

// Stuck is a native whose function does not return until it is released.
type Stuck struct{ c *C.nt_stuck }

// NewStuck makes one. Its memory stays, as a lost thread may use it at any time.
func NewStuck() (plugin.Native, Stuck) {
	s := Stuck{(*C.nt_stuck)(C.calloc(1, C.sizeof_nt_stuck))}
	return plugin.Native{Function: uintptr(C.holder()), Context: uintptr(unsafe.Pointer(s.c))}, s
}

// Entered reports whether the function was called.
func (s Stuck) Entered() bool { return C.entered(s.c) != 0 }

// Left reports whether the function has returned.
func (s Stuck) Left() bool { return C.left(s.c) != 0 }

// Release lets the function return.
func (s Stuck) Release() { C.let(s.c) }

// Calls returns the number of calls of the function.
func (s *Seen) Calls() int { return int(s.c.calls) }

// Register returns a register as the last call saw it.
func (s *Seen) Register(i int) int64 { return int64(s.c.registers[i]) }

// Memory returns the send and receive memory as the last call saw them.
func (s *Seen) Memory() (send, recv unsafe.Pointer) { return s.c.send, s.c.recv }

// Free ends the use of the native.
func (s *Seen) Free() { s.pinner.Unpin() }

// Requests is a native whose requests copy as many bytes as their argument says from send to receive memory when they
// end.
type Requests struct{ c *C.nt_engine }

// NewRequests makes one whose requests end at the given poll of all of them, and not before
// so many were started, with a reply, about a rank, and its words; -1: no rank. The words
// stay.
func NewRequests(polls, starts int, result plugin.Code, rank int, words string) (plugin.Native, Requests) {
	r := Requests{(*C.nt_engine)(C.calloc(1, C.sizeof_nt_engine))}
	r.c.until, r.c.after, r.c.status, r.c.peer, r.c.text = C.int64_t(polls), C.int64_t(starts), C.int32_t(result),
		C.int32_t(rank+1), C.CString(words)
	return plugin.Native{Start: uintptr(C.starter()), Poll: uintptr(C.poller()), Context: uintptr(unsafe.Pointer(r.c))}, r
}

// Deafen makes requests ignore that they are to stop.
func (r Requests) Deafen() { r.c.deaf = 1 }

// Counts returns the calls of start, of poll, and of poll with stop.
func (r Requests) Counts() (starts, polls, stops int) {
	return int(r.c.starts), int(r.c.polls), int(r.c.stops)
}
