package shared

// #include "table.h"
import "C"

import (
	"context"
	"fmt"

	"github.com/shunt-ccl/shunt/plugin"
)

// Register tells the object of memory of the caller's.
func (e *endpoint) Register(ctx context.Context, m plugin.Memory) (uint64, error) {
	operation := fmt.Sprintf("register %d bytes at %#x", m.Bytes, m.Address)
	if err := e.registers(ctx, operation); err != nil {
		return 0, err
	}
	c := C.shunt_memory{address: C.uint64_t(m.Address), bytes: C.int64_t(m.Bytes), kind: C.shunt_memory_kind(m.Kind),
		generation: C.uint64_t(m.Generation)}
	var key C.uint64_t
	var report C.shunt_native_report
	status := C.shunt_call_register_memory(e.transport.table, e.handle, &c, &key, &report)
	return uint64(key), e.reported(operation, status, &report)
}

// Deregister ends a registration of the object's.
func (e *endpoint) Deregister(ctx context.Context, key uint64) error {
	operation := fmt.Sprintf("deregister key %#x", key)
	if err := e.registers(ctx, operation); err != nil {
		return err
	}
	var report C.shunt_native_report
	status := C.shunt_call_deregister_memory(e.transport.table, e.handle, C.uint64_t(key), &report)
	return e.reported(operation, status, &report)
}

// registers begins a call on the endpoint, which must have the feature.
func (e *endpoint) registers(ctx context.Context, operation string) error {
	if err := e.begin(ctx, operation); err != nil {
		return err
	}
	if e.transport.info.Features&plugin.FeatureRegistration == 0 {
		return e.errorf(operation, plugin.Unsupported, "the transport registers no memory")
	}
	return nil
}

// reported is end for a function whose sentence is in a report: the message of the endpoint belongs to a call that may
// run beside it.
func (e *endpoint) reported(operation string, status C.shunt_status, report *C.shunt_native_report) error {
	if status == C.SHUNT_OK {
		return nil
	}
	message, err := text(&report.message[0], len(report.message)-1)
	if err != nil {
		message = ""
	}
	return e.failed(operation, status, plugin.Clip(message))
}
