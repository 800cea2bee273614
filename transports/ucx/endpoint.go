package ucx

// #include <stdlib.h>
// #include "ucx.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/plugin"
)

// closeMilliseconds bounds how long connections may take to close in order.
const closeMilliseconds = 2000

// endpoint is one rank's. It makes its worker and connections when the first plan is exchanged for.
type endpoint struct {
	library *library
	config  plugin.OpenConfig
	layout  layout
	region  plugin.Region
	memory  []byte // of the region

	mu        sync.Mutex // Abort comes from another goroutine
	worker    *C.ux_worker
	connected bool
	aborted   bool
	orders    []*C.ux_order
}

func newEndpoint(l *library, c plugin.OpenConfig) (*endpoint, error) {
	e := &endpoint{library: l, config: c, layout: layoutOf(c.World)}
	fd, err := unix.MemfdCreate("shunt-ucx", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, plugin.SystemError(err, "ucx: memfd_create")
	}
	e.region = plugin.Region{ID: 0, Role: plugin.RegionRoleLocal, Memory: plugin.MemoryKindHost, Bytes: e.layout.bytes,
		Handle: plugin.Handle{Kind: plugin.HandleKindMemfd, Generation: 1, Bytes: e.layout.bytes, FD: fd}}
	if err := unix.Ftruncate(fd, e.layout.bytes); err != nil {
		return nil, errors.Join(plugin.SystemError(err, "ucx: ftruncate"), e.Close())
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		return nil, errors.Join(plugin.SystemError(err, "ucx: sealing a memfd"), e.Close())
	}
	if e.memory, err = unix.Mmap(fd, 0, int(e.layout.bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, errors.Join(plugin.SystemError(err, "ucx: mmap"), e.Close())
	}
	return e, nil
}

// spare returns an error unless as many descriptors are free as a worker takes, and its connections while each end of
// a pair makes one. Where UCX gets none it ends the process, or takes the peer for dead.
func spare(world int) error {
	interfaces, _ := net.Interfaces() // if they are not known, it is for lack of descriptors
	n := 12 + 2*len(interfaces) + 2*world
	for range n {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return plugin.SystemError(err, "ucx: a worker needs up to %d more file descriptors, raise the limit (ulimit -n)", n)
		}
		defer func() { _ = unix.Close(fd) }()
	}
	return nil
}

// Regions returns the memory for tables and pieces, which is this rank's alone.
func (e *endpoint) Regions() []plugin.Region { return []plugin.Region{e.region} }

// Images returns none.
func (e *endpoint) Images() []plugin.Image { return nil }

// Allocate is not supported.
func (e *endpoint) Allocate(context.Context, uint32, int64) (plugin.Region, error) {
	return plugin.Region{}, plugin.Errorf(plugin.Unsupported, "ucx: it allocates no memory for users")
}

// Free is not supported.
func (e *endpoint) Free(context.Context, uint32) error {
	return plugin.Errorf(plugin.Unsupported, "ucx: it allocates no memory for users")
}

// failure is the error of a call of ucx.c.
func failure(what string, status C.shunt_status, report *C.shunt_native_report) error {
	return &plugin.Error{Code: plugin.Code(status), Rank: int(report.peer) - 1,
		Message: what + ": " + C.GoString(&report.message[0])}
}

// Publish says which library this rank has, when endpoints are opened; before the first plan is prepared it gives the
// worker's address.
func (e *endpoint) Publish(_ context.Context, x plugin.Exchange) ([]byte, error) {
	if x.Algorithm == "" {
		return []byte(e.library.String()), nil
	}
	if e.config.World == 1 || e.connected {
		return nil, nil
	}
	if err := e.open(); err != nil {
		return nil, err
	}
	var report C.shunt_native_report
	var address unsafe.Pointer
	var bytes C.size_t
	if status := C.ux_address(e.worker, &address, &bytes, &report); status != C.SHUNT_OK {
		return nil, failure("asking for the worker's address", status, &report)
	}
	defer C.ux_free_address(e.worker, address)
	return C.GoBytes(address, C.int(bytes)), nil
}

// open makes the worker, unless there is one. UCX may take its time, in which Abort may come.
func (e *endpoint) open() error {
	if err := e.keep(e.worker); err != nil || e.worker != nil {
		return err
	}
	if err := spare(e.config.World); err != nil {
		return err
	}
	var report C.shunt_native_report
	var worker *C.ux_worker
	devices := C.CString(e.library.devices())
	defer C.free(unsafe.Pointer(devices))
	if status := C.ux_open(e.library.table, C.int(e.config.Rank), C.int(e.config.World),
		(*C.char)(unsafe.Pointer(&e.memory[0])), devices, &worker, &report); status != C.SHUNT_OK {
		return failure("making a worker", status, &report)
	}
	return e.keep(worker)
}

// keep makes a worker the endpoint's, for Close to free and Abort to end, and returns an error if Abort has come.
func (e *endpoint) keep(worker *C.ux_worker) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.worker = worker
	if !e.aborted {
		return nil
	}
	if worker != nil {
		C.ux_abort(worker)
	}
	return plugin.Errorf(plugin.Aborted, "ucx: the communicator was aborted")
}

// Connect compares the ranks' libraries, or connects to all ranks.
func (e *endpoint) Connect(_ context.Context, x plugin.Exchange, published [][]byte) error {
	if x.Algorithm == "" {
		for rank, version := range published {
			if string(version) != string(published[0]) {
				return plugin.Errorf(plugin.Unsupported, "ucx: rank %d has UCX %q and rank 0 UCX %q; they must be the same", rank,
					version, published[0])
			}
		}
		return nil
	}
	if e.config.World == 1 || e.connected {
		return nil
	}
	for rank, address := range published {
		if rank == e.config.Rank {
			continue
		}
		if len(address) == 0 {
			return plugin.Errorf(plugin.Internal, "ucx: rank %d has connections already, after a plan that failed; make a new communicator",
				rank)
		}
		var report C.shunt_native_report
		buffer := C.CBytes(address)
		status := C.ux_connect(e.worker, C.int(rank), buffer, &report)
		C.free(buffer)
		if status != C.SHUNT_OK {
			return failure(fmt.Sprintf("connecting to rank %d", rank), status, &report)
		}
	}
	e.connected = true
	return nil
}

// Abort ends what waits for peers.
func (e *endpoint) Abort(string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.aborted = true
	if e.worker != nil {
		C.ux_abort(e.worker)
	}
}

// Close closes the connections and frees the memory.
func (e *endpoint) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.worker != nil {
		if status := C.ux_close(e.worker, closeMilliseconds); status != C.SHUNT_OK {
			return plugin.Errorf(plugin.Timeout, "ucx: messages still use the caller's memory; they and the connections stay")
		}
		e.worker = nil
	}
	for _, o := range e.orders {
		C.free(unsafe.Pointer(o))
	}
	e.orders = nil
	var errs []error
	if e.memory != nil {
		errs = append(errs, unix.Munmap(e.memory))
		e.memory = nil
	}
	if e.region.Handle.FD >= 0 {
		errs = append(errs, unix.Close(e.region.Handle.FD))
		e.region.Handle.FD = -1
	}
	return errors.Join(errs...)
}
