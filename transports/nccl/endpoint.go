package nccl

// #include <stdlib.h>
// #include "nccl.h"
import "C"

import (
	"context"
	"errors"
	"sync"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// endpoint is one rank's. It makes its communicator of NCCL when the first plan is exchanged for.
type endpoint struct {
	library *library
	driver  cuda.Driver
	ctx     cuda.Context
	stream  cuda.Stream // for what is done beside the caller's
	config  plugin.OpenConfig
	word    cuda.Ptr // 8 bytes for barriers
	calls   []*C.nl_call
	closed  bool
	unmade  error  // why the communicator could not be made
	named   []byte // of rank 0: the name of the communicator that is to be made

	registers bool // RegisterVariable is on

	mu      sync.Mutex // Abort comes from another goroutine
	comm    *C.nl_comm // nil: not made yet
	aborted bool
	ending  sync.WaitGroup // aborts that still run
	memory  map[uint64]*C.nl_memory
	lastKey uint64 // of memory
}

// Regions returns none: NCCL has its own memory.
func (e *endpoint) Regions() []plugin.Region { return nil }

// Images returns none.
func (e *endpoint) Images() []plugin.Image { return nil }

// Allocate is not supported.
func (e *endpoint) Allocate(context.Context, uint32, int64) (plugin.Region, error) {
	return plugin.Region{}, plugin.Errorf(plugin.Unsupported, "nccl: it allocates no memory for users")
}

// Free is not supported.
func (e *endpoint) Free(context.Context, uint32) error {
	return plugin.Errorf(plugin.Unsupported, "nccl: it allocates no memory for users")
}

// Publish says which library this rank has, when endpoints are opened, and whether memory is registered with it, which
// NCCL wants alike on all ranks; before a plan is prepared rank 0 names the communicator of NCCL that is to be made.
func (e *endpoint) Publish(_ context.Context, x plugin.Exchange) ([]byte, error) {
	if x.Algorithm == "" {
		text := e.library.String()
		if e.unregistered() == "" {
			text += " with " + RegisterVariable + "=on"
		}
		return []byte(text), nil
	}
	if err := e.unmade; err != nil {
		return nil, plugin.Errorf(plugin.CodeOf(err), "%w (in an earlier call; make a new communicator)", err)
	}
	if e.made() {
		return []byte{made}, nil
	}
	if e.config.Rank != 0 {
		return []byte{missing}, nil
	}
	if e.named == nil { // else it is published for several plans
		var id C.nl_id
		var report C.shunt_native_report
		if status := C.nl_unique_id(e.library.table, &id, &report); status != C.SHUNT_OK {
			return nil, failure("naming a communicator", status, &report)
		}
		e.named = C.GoBytes(unsafe.Pointer(&id), C.NL_ID_BYTES)
	}
	return append([]byte{missing}, e.named...), nil
}

// What a rank says of its communicator of NCCL before a plan is prepared.
const (
	missing = 0 // behind it, from rank 0, the name of the one to be made
	made    = 1
)

// Connect compares the ranks' libraries, or makes the communicator of NCCL.
func (e *endpoint) Connect(ctx context.Context, x plugin.Exchange, published [][]byte) error {
	if x.Algorithm == "" {
		for rank, version := range published {
			if string(version) != string(published[0]) {
				return plugin.Errorf(plugin.Unsupported, "nccl: rank %d has NCCL %q and rank 0 NCCL %q; they must be the same", rank, version,
					published[0])
			}
		}
		return nil
	}
	for rank, said := range published {
		if len(said) == 0 || said[0] > made {
			return plugin.Errorf(plugin.Protocol, "nccl: rank %d published %d bytes about its communicator", rank, len(said))
		}
		if said[0] != published[0][0] {
			return plugin.Errorf(plugin.Internal, "nccl: only some ranks have a communicator of NCCL, after one could not be made; make a new communicator")
		}
	}
	if published[0][0] == made || e.made() { // for another plan of this exchange
		return nil
	}
	if len(published[0]) != 1+C.NL_ID_BYTES {
		return plugin.Errorf(plugin.Protocol, "nccl: rank 0 published a name of %d bytes, want %d", len(published[0])-1, C.NL_ID_BYTES)
	}
	e.named, e.unmade = nil, e.join(ctx, published[0][1:])
	return e.unmade
}

func (e *endpoint) made() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.comm != nil
}

// pollEvery is the time between two looks at a communicator that is being made.
const pollEvery = time.Millisecond

// join makes the communicator, with all ranks.
func (e *endpoint) join(ctx context.Context, id []byte) error {
	if e.word == 0 {
		word, err := e.driver.Alloc(e.ctx, 8)
		if err != nil {
			return err
		}
		e.word = word
	}
	comm := C.nl_new(e.library.table, unsafe.Pointer(&id[0]), C.int(e.config.Rank), C.int(e.config.World),
		C.int(e.config.MaxSMs))
	if comm == nil {
		return plugin.Errorf(plugin.OutOfMemory, "nccl: making a communicator failed: malloc returned null")
	}
	e.mu.Lock()
	aborted := e.aborted
	if !aborted {
		e.comm = comm
	}
	e.mu.Unlock()
	if aborted {
		C.nl_free(comm)
		return plugin.Errorf(plugin.Aborted, "nccl: the communicator was aborted")
	}
	for _, begin := range []unsafe.Pointer{C.nl_begin_function(), C.nl_split_function()} {
		if err := e.native(begin, uintptr(unsafe.Pointer(comm))); err != nil {
			return plugin.Errorf(plugin.CodeOf(err), "nccl: making a communicator: %w", err)
		}
		if err := e.await(ctx, comm); err != nil {
			return err
		}
	}
	return nil
}

// await waits until what was begun to be made is ready.
func (e *endpoint) await(ctx context.Context, comm *C.nl_comm) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		var report C.shunt_native_report
		switch status := C.nl_look(comm, &report); status {
		case C.SHUNT_OK:
			return nil
		case C.SHUNT_PENDING:
		default:
			return failure("making a communicator", status, &report)
		}
		select {
		case <-ctx.Done():
			e.Abort("")
			return plugin.Errorf(plugin.CodeOf(ctx.Err()), "nccl: not all ranks have come to make a communicator of NCCL: %w", context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// native calls a native function with the device's context current.
func (e *endpoint) native(function unsafe.Pointer, argument uintptr) error {
	return e.submit(make([]byte, 8), cuda.Work{Handle: uint64(uintptr(function)), Bytes: uint64(argument)})
}

// always calls a native function that has to run, even where the driver returns errors for everything.
func (e *endpoint) always(function unsafe.Pointer, comm *C.nl_comm, direct func()) {
	if e.native(function, uintptr(unsafe.Pointer(comm))) != nil {
		direct()
	}
}

// submit calls a native function with registers, and with the endpoint's stream.
func (e *endpoint) submit(registers []byte, call cuda.Work) error {
	call.Kind, call.Stream = cuda.WorkCall, e.stream
	_, _, err := e.driver.Submit(e.ctx, &cuda.Batch{Stream: e.stream, Params: registers, Work: []cuda.Work{call}})
	return err
}

func failure(doing string, status C.shunt_status, report *C.shunt_native_report) error {
	return plugin.Errorf(plugin.Code(status), "nccl: %s: %s", doing, plugin.Printable(C.GoString(&report.message[0])))
}

// Prepare writes a plan of one native step.
func (e *endpoint) Prepare(_ context.Context, r plugin.Request, algorithm string) (*plugin.Plan, error) {
	call, err := e.newCall(r, algorithm, algorithmName)
	if err != nil {
		return nil, err
	}
	b := plugin.NewBuilder(r, algorithm)
	b.Track(func() {
		b.Native(plugin.Native{Function: uintptr(C.nl_run_function()), Context: uintptr(unsafe.Pointer(call))})
	})
	return b.Plan()
}

// newCall makes what nl_run needs for a request. It belongs to the endpoint.
func (e *endpoint) newCall(r plugin.Request, algorithm, known string) (*C.nl_call, error) {
	if algorithm != known {
		return nil, plugin.Errorf(plugin.InvalidArgument, "nccl: algorithm %q is unknown, want %q", algorithm, known)
	}
	if reason := unsupported(r, e.library.version); reason != "" {
		return nil, plugin.Errorf(plugin.Unsupported, "nccl: %s", reason)
	}
	e.mu.Lock()
	comm := e.comm
	e.mu.Unlock()
	if comm == nil {
		return nil, plugin.Errorf(plugin.Internal, "nccl: a plan was prepared before bytes were exchanged for it")
	}
	call := (*C.nl_call)(C.calloc(1, C.sizeof_nl_call))
	*call = C.nl_call{comm: comm, word: C.uint64_t(e.word), collective: C.int32_t(r.Collective), dtype: C.int32_t(r.DType),
		op: C.int32_t(r.Op), element: C.int32_t(r.DType.Bytes()), world: C.int32_t(r.World)}
	e.calls = append(e.calls, call)
	return call, nil
}

// Abort ends what NCCL does for this communicator. NCCL takes a while, so it runs in a goroutine of its own.
func (e *endpoint) Abort(string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.aborted {
		return
	}
	e.aborted = true
	if comm := e.comm; comm != nil {
		e.ending.Go(func() {
			e.always(C.nl_abort_function(), comm, func() { C.nl_abort(unsafe.Pointer(comm), nil, nil, nil, nil, nil) })
		})
	}
}

func (e *endpoint) isAborted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.aborted
}

// Check returns NCCL's asynchronous error.
func (e *endpoint) Check() error { return e.look("between calls") }

// look returns NCCL's asynchronous error while something is done.
func (e *endpoint) look(doing string) error {
	e.mu.Lock()
	comm, aborted := e.comm, e.aborted
	e.mu.Unlock()
	if comm == nil || aborted {
		return nil
	}
	var report C.shunt_native_report
	switch status := C.nl_look(comm, &report); status {
	case C.SHUNT_OK, C.SHUNT_PENDING, C.SHUNT_ABORTED:
		return nil
	default:
		return failure(doing, status, &report)
	}
}

// closeTime is the longest time that Close waits for NCCL to destroy its communicator. It cannot while a graph lives
// that has captured an operation; then it does so later, by itself.
const closeTime = 3 * time.Second

// Close destroys the communicator of NCCL.
func (e *endpoint) Close() error { return e.end(func() error { return e.release(nil) }) }

// end releases the endpoint, and waits no longer than closeTime.
func (e *endpoint) end(release func() error) error {
	if e.closed {
		return nil
	}
	e.closed = true
	ended := make(chan error, 1)
	go func() { ended <- release() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(closeTime):
		return nil
	}
}

// release destroys the communicator, then frees what it worked on.
func (e *endpoint) release(memory func() error) error {
	e.ending.Wait()
	e.mu.Lock()
	comm := e.comm
	e.mu.Unlock()
	var err error
	if comm != nil {
		e.always(C.nl_destroy_function(), comm, func() { C.nl_destroy(unsafe.Pointer(comm), nil, nil, nil, nil, nil) })
		C.nl_free(comm)
	}
	for _, call := range e.calls {
		C.free(unsafe.Pointer(call))
	}
	for _, memory := range e.memory { // NCCL has released it with the communicator
		C.free(unsafe.Pointer(memory))
	}
	if memory != nil {
		err = memory()
	}
	if e.word != 0 {
		err = errors.Join(err, e.driver.Free(e.ctx, e.word))
	}
	return errors.Join(err, e.driver.DestroyStream(e.ctx, e.stream), e.driver.Release(e.config.Device))
}
