package shared

// #include <stdlib.h>
// #include "table.h"
import "C"

import (
	"context"
	"fmt"
	"log/slog"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/check"
)

// transport is a loaded object.
type transport struct {
	path   string
	table  *C.shunt_transport_v1 // own copy
	info   plugin.Info
	logger *slog.Logger
	images copies
}

func (t *transport) Info() plugin.Info { return t.info }

func request(r plugin.Request) C.shunt_request {
	truth := func(v bool) C.uint32_t {
		if v {
			return 1
		}
		return 0
	}
	return C.shunt_request{
		struct_size: C.sizeof_shunt_request,
		collective:  C.shunt_collective(r.Collective), dtype: C.shunt_dtype(r.DType), op: C.shunt_op(r.Op),
		bytes: C.int64_t(r.Bytes), world: C.int32_t(r.World), hosts: C.int32_t(r.Hosts),
		memory: C.shunt_memory_kind(r.Memory), rank: C.int32_t(r.Rank), peer_read: truth(r.PeerRead),
		symmetric:     truth(r.Symmetric),
		device_counts: truth(r.DeviceCounts), nvlink: truth(r.NVLink),
	}
}

// Supports asks the object. A result that breaks the contract's limits counts as no,
// with the violation as the reason.
func (t *transport) Supports(r plugin.Request) plugin.Support {
	s, err := t.Ask(context.Background(), r)
	if err != nil {
		t.logger.Warn("a transport's result of Supports is invalid", "collective", r.Collective.String(), "error", err)
		return plugin.Support{Reason: plugin.Clip("its result is invalid: " + err.Error())}
	}
	return s
}

// Ask is Supports, except that a result which breaks the contract is an error. C cannot
// be interrupted: the host calls this on a thread that it can lose.
func (t *transport) Ask(_ context.Context, r plugin.Request) (plugin.Support, error) {
	r.Rank = 0 // which Supports must not look at
	asked := request(r)
	result := C.shunt_support{struct_size: C.sizeof_shunt_support}
	C.shunt_call_supports(t.table, &asked, &result)
	s, err := support(&result)
	if err == nil {
		err = s.Validate()
	}
	return s, err
}

func support(result *C.shunt_support) (plugin.Support, error) {
	if result.count == C.SHUNT_SUPPORTS_FAILED {
		reason, err := text(&result.reason[0], len(result.reason)-1)
		if err != nil {
			reason = "it does not say why"
		}
		return plugin.Support{}, plugin.Errorf(plugin.Internal, "supports failed: %s", plugin.Clip(reason))
	}
	if result.count > C.SHUNT_MAX_ALGORITHMS {
		return plugin.Support{}, plugin.Errorf(plugin.Protocol, "it offers %d algorithms, want at most %d",
			uint32(result.count), plugin.MaxAlgorithms)
	}
	s := plugin.Support{}
	var err error
	if s.Reason, err = text(&result.reason[0], len(result.reason)-1); err != nil {
		return s, plugin.Errorf(plugin.Protocol, "its reason: %w", err)
	}
	for i := range result.algorithms[:result.count] {
		a := &result.algorithms[i]
		name, err := text(&a.name[0], len(a.name)-1)
		if err != nil {
			return s, plugin.Errorf(plugin.Protocol, "the name of algorithm %d: %w", i, err)
		}
		s.Algorithms = append(s.Algorithms, plugin.Algorithm{
			Name: name, MinBytes: int64(a.min_bytes), MaxBytes: int64(a.max_bytes),
			Latency: float64(a.latency), Bandwidth: float64(a.bandwidth), Numerics: plugin.Numerics(a.numerics),
		})
	}
	return s, nil
}

// Open opens an endpoint and copies what it publishes.
func (t *transport) Open(ctx context.Context, config plugin.OpenConfig) (plugin.Endpoint, error) {
	e := &endpoint{transport: t, config: config}
	if err := ctx.Err(); err != nil {
		return nil, e.errorf("open", plugin.CodeOf(err), "%w", err)
	}
	var message [C.SHUNT_MAX_MESSAGE]C.char
	options, free := cOptions(config.Options)
	defer free()
	c := C.shunt_open_config{
		struct_size: C.sizeof_shunt_open_config, memory: C.shunt_memory_kind(config.Memory),
		communicator: C.uint64_t(config.Communicator), rank: C.int32_t(config.Rank), world: C.int32_t(config.World),
		device: C.int32_t(config.Device), count_options: C.uint32_t(len(config.Options)), options: options,
		max_sms: C.uint32_t(config.MaxSMs),
	}
	status := C.shunt_call_open(t.table, &c, &e.handle, &message[0], C.SHUNT_MAX_MESSAGE)
	if status != C.SHUNT_OK {
		return nil, e.failed("open", status, said(&message))
	}
	if e.handle == nil {
		return nil, e.errorf("open", plugin.Protocol, "it succeeded without an endpoint")
	}
	if err := e.copyPublished(); err != nil {
		_ = e.Close()
		return nil, err
	}
	return e, nil
}

// cOptions puts options into C memory until free is called.
func cOptions(options map[string]string) (*C.shunt_option, func()) {
	if len(options) == 0 {
		return nil, func() {}
	}
	array := (*C.shunt_option)(C.calloc(C.size_t(len(options)), C.sizeof_shunt_option))
	all := unsafe.Slice(array, len(options))
	i := 0
	for name, value := range options {
		all[i] = C.shunt_option{name: C.CString(name), value: C.CString(value)}
		i++
	}
	return array, func() {
		for _, o := range all {
			C.free(unsafe.Pointer(o.name))
			C.free(unsafe.Pointer(o.value))
		}
		C.free(unsafe.Pointer(array))
	}
}

// failed returns the error of a call that returned a status and a message.
func (e *endpoint) failed(operation string, status C.shunt_status, message string) error {
	code := plugin.Code(status)
	if message == "" {
		message = "it left no message"
	}
	if code <= plugin.OK || code > plugin.Internal {
		return e.errorf(operation, plugin.Internal, "status %d, which is unknown: %s", int32(status), message)
	}
	return plugin.Errorf(code, "%s", check.Behind(e.where(operation), message))
}

func (e *endpoint) errorf(operation string, code plugin.Code, format string, args ...any) error {
	return plugin.Errorf(code, "%s"+format, append([]any{e.where(operation)}, args...)...)
}

// where says what an error is of.
func (e *endpoint) where(operation string) string {
	return fmt.Sprintf("%s: %s on rank %d: ", e.transport.info.Name, operation, e.config.Rank)
}
