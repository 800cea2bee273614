// Package export makes a shared object of a transport written in Go. The main
// package of such an object is
//
//	package main
//
//	import "…"
//
//	func init() { export.Transport(mytransport.Transport{}) }
//
//	func main() {}
//
// built with -buildmode=c-shared. The package holds the table of
// shunt_transport.h and its functions; each of them recovers a panic into an
// error with code Internal. A panic in a goroutine that the transport starts
// ends the process that loaded it.
package export

/*
#cgo CFLAGS: -I${SRCDIR}/../.. -Wall -Wextra -Wno-unused-parameter
#include <stdlib.h>
#include "export.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime/cgo"
	"strings"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/check"
)

var exported plugin.Transport

// Transport makes t the transport of this shared object. It is called once,
// from an init function, and panics if t's Info breaks the contract.
func Transport(t plugin.Transport) {
	if exported != nil {
		panic("export: a shared object holds one transport")
	}
	i := t.Info()
	if err := i.Validate(); err != nil {
		panic(fmt.Sprintf("export: %v", err))
	}
	name, version, doc := C.CString(i.Name), C.CString(i.Version), C.CString(i.Doc)
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(version))
	defer C.free(unsafe.Pointer(doc))
	var memory [16]C.uint32_t
	for k, m := range i.Memory {
		memory[k] = C.uint32_t(m)
	}
	if C.shunt_export_describe(name, version, doc, C.uint64_t(i.Features), &memory[0], C.uint32_t(len(i.Memory)),
		C.uint32_t(i.MaxWorld)) == 0 {
		panic("export: the transport's description does not fit the table")
	}
	exported = t
}

//export shunt_export_ready
func shunt_export_ready() {}

func goRequest(r *C.shunt_request) plugin.Request {
	return plugin.Request{
		Collective: plugin.Collective(r.collective), DType: plugin.DType(r.dtype), Op: plugin.Op(r.op), Bytes: int64(r.bytes),
		World: int(r.world), Hosts: int(r.hosts), Memory: plugin.MemoryKind(r.memory), Rank: int(r.rank),
		// A host that is older than a field sends a shorter struct.
		PeerRead:  uintptr(r.struct_size) >= unsafe.Offsetof(r.peer_read)+unsafe.Sizeof(r.peer_read) && r.peer_read != 0,
		Symmetric: uintptr(r.struct_size) >= unsafe.Offsetof(r.symmetric)+unsafe.Sizeof(r.symmetric) && r.symmetric != 0,
		DeviceCounts: uintptr(r.struct_size) >= unsafe.Offsetof(r.device_counts)+unsafe.Sizeof(r.device_counts) &&
			r.device_counts != 0,
		NVLink: uintptr(r.struct_size) >= unsafe.Offsetof(r.nvlink)+unsafe.Sizeof(r.nvlink) && r.nvlink != 0,
	}
}

// put copies a Go string into a C array, cut to fit between characters.
func put(to []C.char, s string) {
	if len(s) >= len(to) {
		s = strings.ToValidUTF8(s[:len(to)-1], "")
	}
	for i := range len(s) {
		to[i] = C.char(s[i])
	}
	to[len(s)] = 0
}

//export shunt_export_supports
func shunt_export_supports(r *C.shunt_request, result *C.shunt_support) {
	failed := func(why string) {
		result.count = C.SHUNT_SUPPORTS_FAILED
		put(result.reason[:], plugin.Clip(why))
	}
	defer func() {
		if p := recover(); p != nil {
			failed(fmt.Sprintf("the transport panicked: %v", p))
		}
	}()
	s := exported.Supports(goRequest(r))
	if err := s.Validate(); err != nil { // before names and reasons are cut to fit
		failed(err.Error())
		return
	}
	for i, a := range s.Algorithms {
		c := &result.algorithms[i]
		put(c.name[:], a.Name)
		c.min_bytes, c.max_bytes = C.int64_t(a.MinBytes), C.int64_t(a.MaxBytes)
		c.latency, c.bandwidth = C.double(a.Latency), C.double(a.Bandwidth)
		c.numerics = C.uint32_t(a.Numerics)
	}
	result.count = C.uint32_t(len(s.Algorithms))
	put(result.reason[:], s.Reason)
}

// status returns the code of an error, and writes its message into to.
func status(err error, to []C.char) C.shunt_status {
	if err == nil {
		put(to, "")
		return C.SHUNT_OK
	}
	put(to, plugin.Clip(err.Error()))
	return C.shunt_status(plugin.CodeOf(err))
}

// guard calls f and turns a panic into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = plugin.Errorf(plugin.Internal, "the transport panicked: %v", p)
		}
	}()
	return plugin.ErrorOf(f())
}

//export shunt_export_open
func shunt_export_open(c *C.shunt_open_config, out **C.shunt_endpoint, message *C.char, bytes C.size_t) C.shunt_status {
	return status(guard(func() error {
		if exported == nil {
			return plugin.Errorf(plugin.Internal, "no init function called export.Transport")
		}
		config := plugin.OpenConfig{
			Communicator: uint64(c.communicator), Rank: int(c.rank), World: int(c.world),
			Memory: plugin.MemoryKind(c.memory), Device: int(c.device), Options: map[string]string{},
		}
		if uintptr(c.struct_size) >= unsafe.Offsetof(c.max_sms)+unsafe.Sizeof(c.max_sms) { // as in goRequest
			config.MaxSMs = int(c.max_sms)
		}
		for _, o := range unsafe.Slice(c.options, c.count_options) {
			config.Options[C.GoString(o.name)] = C.GoString(o.value)
		}
		e, err := plugin.Opened(exported.Open(context.Background(), config))
		if err != nil {
			return err
		}
		published, err := publish(e)
		if err != nil {
			_ = e.Close()
			return err
		}
		*out = published
		return nil
	}), given(message, bytes))
}

// given returns the caller's room for a sentence, or some of our own if it has none.
func given(message *C.char, bytes C.size_t) []C.char {
	if message == nil || bytes == 0 {
		return make([]C.char, C.SHUNT_MAX_MESSAGE)
	}
	return unsafe.Slice(message, bytes)
}

func openedOf(e *C.shunt_endpoint) *opened { return cgo.Handle(e.handle).Value().(*opened) }

// endpointOf returns the Go endpoint behind a C one.
func endpointOf(e *C.shunt_endpoint) plugin.Endpoint {
	return openedOf(e).Endpoint
}

//export shunt_export_allocate
func shunt_export_allocate(e *C.shunt_endpoint, id C.uint32_t, bytes C.int64_t, out *C.shunt_region) C.shunt_status {
	return status(guard(func() error {
		r, err := endpointOf(e).Allocate(context.Background(), uint32(id), int64(bytes))
		if err != nil {
			return err
		}
		return putRegion(out, r)
	}), e.message[:])
}

//export shunt_export_free
func shunt_export_free(e *C.shunt_endpoint, id C.uint32_t) C.shunt_status {
	return status(guard(func() error { return endpointOf(e).Free(context.Background(), uint32(id)) }), e.message[:])
}

//export shunt_export_prepare
func shunt_export_prepare(e *C.shunt_endpoint, r *C.shunt_request, algorithm *C.char,
	out **C.shunt_plan) C.shunt_status {
	return status(guard(func() error {
		p, err := endpointOf(e).Prepare(context.Background(), goRequest(r), C.GoString(algorithm))
		if err != nil {
			return err
		}
		if p == nil {
			return plugin.Errorf(plugin.Internal, "the transport returned no plan")
		}
		*out, err = cPlan(p)
		return err
	}), e.message[:])
}

// exchanging calls f on the endpoint, which must exchange bytes.
func exchanging(e *C.shunt_endpoint, r *C.shunt_request, algorithm *C.char,
	f func(plugin.Exchanger, plugin.Exchange) error) C.shunt_status {
	return status(guard(func() error {
		exchanger, ok := endpointOf(e).(plugin.Exchanger)
		if !ok {
			return plugin.Errorf(plugin.Unsupported, "the endpoint exchanges nothing: it has no methods Publish and Connect")
		}
		var x plugin.Exchange
		if r != nil && algorithm != nil {
			x = plugin.Exchange{Request: goRequest(r), Algorithm: C.GoString(algorithm)}
		}
		return f(exchanger, x)
	}), e.message[:])
}

//export shunt_export_publish
func shunt_export_publish(e *C.shunt_endpoint, r *C.shunt_request, algorithm *C.char,
	out *C.shunt_published) C.shunt_status {
	return exchanging(e, r, algorithm, func(exchanger plugin.Exchanger, x plugin.Exchange) error {
		b, err := exchanger.Publish(context.Background(), x)
		if err != nil {
			return err
		}
		if err := check.Published(b); err != nil {
			return err
		}
		copy(unsafe.Slice((*byte)(&e.published[0]), len(e.published)), b)
		*out = C.shunt_published{data: unsafe.Pointer(&e.published[0]), bytes: C.uint64_t(len(b))}
		return nil
	})
}

//export shunt_export_connect
func shunt_export_connect(e *C.shunt_endpoint, r *C.shunt_request, algorithm *C.char, all *C.shunt_published,
	count C.uint32_t, timeout C.int64_t) C.shunt_status {
	return exchanging(e, r, algorithm, func(exchanger plugin.Exchanger, x plugin.Exchange) error {
		published := make([][]byte, count)
		for rank, p := range unsafe.Slice(all, count) {
			if p.bytes > C.SHUNT_MAX_PUBLISHED {
				return plugin.Errorf(plugin.Protocol, "rank %d has published %d bytes, at most %d", rank, uint64(p.bytes),
					plugin.MaxPublished)
			}
			published[rank] = C.GoBytes(p.data, C.int(p.bytes))
		}
		ctx, cancel := context.WithTimeout(openedOf(e).life, time.Duration(timeout))
		defer cancel()
		return exchanger.Connect(ctx, x, published)
	})
}

//export shunt_export_abort
func shunt_export_abort(e *C.shunt_endpoint, reason *C.char) {
	o := openedOf(e)
	o.end()
	o.abortErr = guard(func() error {
		if a, ok := o.Endpoint.(plugin.Aborter); ok {
			a.Abort(C.GoString(reason))
		}
		return nil
	})
}

//export shunt_export_check
func shunt_export_check(e *C.shunt_endpoint, report *C.shunt_native_report) C.shunt_status {
	err := guard(func() error {
		if c, ok := endpointOf(e).(plugin.Checker); ok {
			return c.Check()
		}
		return nil
	})
	var failure *plugin.Error
	if errors.As(err, &failure) {
		report.peer = C.int32_t(failure.Rank + 1)
	}
	return status(err, report.message[:])
}

// registering calls f on the endpoint, which must register memory.
func registering(e *C.shunt_endpoint, report *C.shunt_native_report, f func(plugin.Registrar) error) C.shunt_status {
	return status(guard(func() error {
		r, ok := endpointOf(e).(plugin.Registrar)
		if !ok {
			return plugin.Errorf(plugin.Unsupported, "the endpoint has no methods Register and Deregister")
		}
		return f(r)
	}), report.message[:])
}

//export shunt_export_register_memory
func shunt_export_register_memory(e *C.shunt_endpoint, m *C.shunt_memory, key *C.uint64_t,
	report *C.shunt_native_report) C.shunt_status {
	return registering(e, report, func(r plugin.Registrar) error {
		k, err := r.Register(context.Background(), plugin.Memory{Address: uint64(m.address), Bytes: int64(m.bytes),
			Kind: plugin.MemoryKind(m.kind), Generation: uint64(m.generation)})
		*key = C.uint64_t(k)
		return err
	})
}

//export shunt_export_deregister_memory
func shunt_export_deregister_memory(e *C.shunt_endpoint, key C.uint64_t, report *C.shunt_native_report) C.shunt_status {
	return registering(e, report, func(r plugin.Registrar) error {
		return r.Deregister(context.Background(), uint64(key))
	})
}

//export shunt_export_close
func shunt_export_close(e *C.shunt_endpoint, message *C.char, bytes C.size_t) C.shunt_status {
	return status(guard(func() error {
		o := openedOf(e)
		o.end()
		defer o.images.Unpin()
		cgo.Handle(e.handle).Delete()
		return errors.Join(o.abortErr, o.Close())
	}), given(message, bytes))
}
