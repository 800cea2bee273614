// Package nativetest holds a C function for tests of native steps, because
// test files cannot use cgo. It is linked into tests alone.
package nativetest

/*
#include <stdint.h>

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

// Calls is how often the function was called.
func (s *Seen) Calls() int { return int(s.c.calls) }

// Register is a register as the last call saw it.
func (s *Seen) Register(i int) int64 { return int64(s.c.registers[i]) }

// Memory is the send and receive memory as the last call saw them.
func (s *Seen) Memory() (send, recv unsafe.Pointer) { return s.c.send, s.c.recv }

// Free ends the use of the native.
func (s *Seen) Free() { s.pinner.Unpin() }
