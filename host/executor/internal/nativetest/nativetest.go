// Package nativetest holds a C function for tests of native steps, because
// test files cannot use cgo. It is linked into tests alone.
package nativetest

/*
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct nt_seen {
  int64_t calls, registers[64];
  const void *send;
  void *recv;
  int32_t answer;
} nt_seen;

static int32_t record(void *context, const int64_t *registers, const void *send, void *recv, void *stream) {
  nt_seen *seen = context;
  if (stream) return 15;
  seen->calls++;
  for (int i = 0; i < 64 && i < registers[0]; i++) seen->registers[i] = registers[i];
  seen->send = send;
  seen->recv = recv;
  return seen->answer;
}

static uintptr_t function(void) { return (uintptr_t)record; }

typedef struct nt_stuck {
  _Atomic int32_t entered, release, left;
} nt_stuck;

static int32_t hold(void *context, const int64_t *registers, const void *send, void *recv, void *stream) {
  nt_stuck *s = context;
  s->entered = 1;
  while (!s->release) usleep(1000);
  volatile int64_t seen = registers[0]; // still there, also for a run that is over
  (void)seen, (void)send, (void)recv, (void)stream;
  s->left = 1;
  return 0;
}

static uintptr_t holder(void) { return (uintptr_t)hold; }
static int32_t entered(nt_stuck *s) { return s->entered; }
static int32_t left(nt_stuck *s) { return s->left; }
static void let(nt_stuck *s) { s->release = 1; }
*/
import "C"

import (
	"runtime"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// Seen is what the function saw.
type Seen struct {
	pinner runtime.Pinner
	c      *C.nt_seen
}

// New makes a native whose function notes what it is called with and returns
// the answer. Register 0, the count slot, says how many registers to note, at
// most 64.
func New(answer plugin.Code) (plugin.Native, *Seen) {
	s := &Seen{c: &C.nt_seen{answer: C.int32_t(answer)}}
	s.pinner.Pin(s.c)
	return plugin.Native{Function: uintptr(C.function()), Context: uintptr(unsafe.Pointer(s.c))}, s
}

// Stuck is a native whose function does not return until it is let go.
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

// Calls is how often the function was called.
func (s *Seen) Calls() int { return int(s.c.calls) }

// Register is a register as the last call saw it.
func (s *Seen) Register(i int) int64 { return int64(s.c.registers[i]) }

// Memory is the send and receive memory as the last call saw them.
func (s *Seen) Memory() (send, recv unsafe.Pointer) { return s.c.send, s.c.recv }

// Free ends the use of the native.
func (s *Seen) Free() { s.pinner.Unpin() }
