// Package nccl calls NVIDIA's NCCL, for the benchmark to compare with. It finds the
// library at run time; nothing of it is needed to build. It is no transport:
// operations are passed on unchanged.
//
// A thread calls Enter before anything else and stays locked to its goroutine.
package nccl

// #cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra
// #cgo LDFLAGS: -ldl
// #cgo noescape bn_submit
// #cgo nocallback bn_submit
// #include "nccl.h"
// #include <stdlib.h>
import "C"

import (
	"errors"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// Kind is a call of NCCL.
type Kind int32

// Calls.
const (
	AllReduce Kind = iota
	Reduce
	Broadcast
	AllGather
	ReduceScatter
	AllToAll
	Send
	Recv
)

// Operation is one call. It is laid out as bn_operation.
type Operation struct {
	Send, Recv unsafe.Pointer // device memory
	Count      int64
	Kind       Kind
	DType, Op  int32
	Peer       int32 // or the root
}

// Operation must be laid out as bn_operation: this does not compile otherwise.
var (
	_ [unsafe.Sizeof(Operation{}) - C.sizeof_bn_operation]struct{}
	_ [C.sizeof_bn_operation - unsafe.Sizeof(Operation{})]struct{}
	_ [unsafe.Offsetof(Operation{}.Peer) - unsafe.Offsetof(C.bn_operation{}.peer)]struct{}
)

// UniqueID is the id by which ranks find each other.
type UniqueID [128]byte

// Library is a loaded NCCL.
type Library struct{}

// DefaultPath is the library's name where no other is given.
const DefaultPath = "libnccl.so.2"

// Load loads NCCL from a path, or by its name for "".
func Load(path string) (*Library, error) {
	if path == "" {
		path = DefaultPath
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var message [512]C.char
	if C.bn_load(name, &message[0], C.size_t(len(message))) != 0 {
		return nil, plugin.Errorf(plugin.System, "no NCCL: %s", C.GoString(&message[0]))
	}
	return &Library{}, nil
}

func failed(call string, r C.int) error {
	if r == 0 {
		return nil
	}
	return plugin.Errorf(plugin.Device, "%s: NCCL: %s", call, C.GoString(C.bn_error(r)))
}

// Enter makes a CUDA context current on this thread, which NCCL then uses.
func (l *Library) Enter(context uint64) error {
	if r := C.bn_enter(C.uint64_t(context)); r != 0 {
		return plugin.Errorf(plugin.Device, "cuCtxSetCurrent failed with error %d", int(r))
	}
	return nil
}

// Version returns NCCL's version, as 22809 for 2.28.9.
func (l *Library) Version() (int, error) {
	var v C.int
	r := C.bn_version(&v)
	return int(v), failed("ncclGetVersion", r)
}

// HasAllToAll reports whether the library has a call for AllToAll.
func (l *Library) HasAllToAll() bool { return C.bn_has_all_to_all() != 0 }

// UniqueID returns a new id.
func (l *Library) UniqueID() (UniqueID, error) {
	var id UniqueID
	r := C.bn_unique_id(unsafe.Pointer(&id[0]))
	return id, failed("ncclGetUniqueId", r)
}

// Communicator is one of NCCL's.
type Communicator struct {
	comm    unsafe.Pointer
	windows []registered
}

type registered struct{ memory, window unsafe.Pointer }

// Init joins the ranks; it is collective.
func (l *Library) Init(id UniqueID, rank, world int) (*Communicator, error) {
	c := &Communicator{}
	r := C.bn_init(&c.comm, C.int(world), unsafe.Pointer(&id[0]), C.int(rank))
	if err := failed("ncclCommInitRank", r); err != nil {
		return nil, err
	}
	return c, nil
}

// Window allocates memory and registers it as a symmetric window; it is
// collective. The memory is the communicator's.
func (c *Communicator) Window(bytes int64) (uintptr, error) {
	var w registered
	r := C.bn_window(c.comm, C.size_t(bytes), &w.memory, &w.window)
	c.windows = append(c.windows, w)
	return uintptr(w.memory), failed("ncclCommWindowRegister", r)
}

// Submit puts operations into a stream; several are one group.
func (c *Communicator) Submit(operations []Operation, stream uint64) error {
	r := C.bn_submit(c.comm, *(*unsafe.Pointer)(unsafe.Pointer(&stream)),
		(*C.bn_operation)(unsafe.Pointer(&operations[0])), C.int(len(operations)))
	return failed("NCCL", r)
}

// Close frees the windows and the communicator. Graphs of it must be gone.
func (c *Communicator) Close() error {
	var err error
	for _, w := range c.windows {
		err = errors.Join(err, failed("ncclCommWindowDeregister", C.bn_window_free(c.comm, w.memory, w.window)))
	}
	return errors.Join(err, failed("ncclCommDestroy", C.bn_destroy(c.comm)))
}

// DTypeOf returns NCCL's number for a type; ok is false where it has none.
func DTypeOf(t plugin.DType) (number int32, ok bool) {
	number, ok = map[plugin.DType]int32{
		plugin.Int8: 0, plugin.Uint8: 1, plugin.Int32: 2, plugin.Uint32: 3, plugin.Int64: 4, plugin.Uint64: 5,
		plugin.Float16: 6, plugin.Float32: 7, plugin.Float64: 8, plugin.Bfloat16: 9, plugin.Float8E4m3: 10,
		plugin.Float8E5m2: 11,
	}[t]
	return number, ok
}

// OpOf returns NCCL's number for a reduction op; ok is false where it has none that
// needs no preparation.
func OpOf(op plugin.Op) (number int32, ok bool) {
	number, ok = map[plugin.Op]int32{plugin.OpSum: 0, plugin.OpProd: 1, plugin.OpMax: 2, plugin.OpMin: 3,
		plugin.OpAvg: 4}[op]
	return number, ok
}
