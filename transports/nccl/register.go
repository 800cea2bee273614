package nccl

// #include <stdlib.h>
// #include "nccl.h"
import "C"

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// RegisterVariable has the caller's memory registered with NCCL, if it is on.
//
// NCCL calls it undefined behaviour when one rank of an operation passes registered memory and another passes memory
// that is not. The host registers whatever is passed to NCCL before it is, so that all ranks pass registered memory;
// but not memory of another device, managed or host memory, nor where NCCL returns an error on one rank. That ranks
// pass such memory alike is the program's promise, so it is off unless the user turns it on.
const RegisterVariable = "SHUNT_NCCL_REGISTER"

// leastRegister is the version from which on registered memory may be used by messages and then by a collective.
const leastRegister = 22902

// parseRegister reads the option of that name.
func parseRegister(text string) (bool, error) {
	switch text {
	case "on", "1", "true", "yes":
		return true, nil
	case "", "off", "0", "false", "no":
		return false, nil
	}
	return false, plugin.Errorf(plugin.InvalidArgument, "nccl: %s is %q, want on or off", RegisterVariable, text)
}

// unregistered says why memory is not registered, or "".
func unregistered(on, has bool, version, world int) string {
	switch {
	case !on:
		return RegisterVariable + " is off"
	case !has:
		return fmt.Sprintf("NCCL %s has no ncclCommRegister; 2.19 is the oldest that does", &library{version: version})
	case world > 1 && version < leastRegister:
		return fmt.Sprintf("NCCL %s reads a null address when registered memory is used by send, receive or all_to_all and then by a collective (its issue 1859); 2.29.2 is the oldest that does not",
			&library{version: version})
	}
	return ""
}

// unregistered says why this endpoint registers no memory, or "".
func (e *endpoint) unregistered() string {
	return unregistered(e.registers, C.nl_registers(e.library.table) != 0, e.library.version, e.config.World)
}

// Register has NCCL know memory. Its communicator is there: a plan was prepared that uses it.
func (e *endpoint) Register(_ context.Context, m plugin.Memory) (uint64, error) {
	if reason := e.unregistered(); reason != "" {
		return 0, plugin.Errorf(plugin.Unsupported, "nccl: %s", reason)
	}
	e.mu.Lock()
	comm := e.comm
	e.mu.Unlock()
	if comm == nil {
		return 0, plugin.Errorf(plugin.Internal, "nccl: %d bytes at %#x cannot be registered before a plan is prepared", m.Bytes,
			m.Address)
	}
	memory := (*C.nl_memory)(C.calloc(1, C.sizeof_nl_memory))
	*memory = C.nl_memory{comm: comm, address: C.uint64_t(m.Address), bytes: C.uint64_t(m.Bytes)}
	if err := e.native(C.nl_register_function(), uintptr(unsafe.Pointer(memory))); err != nil {
		C.free(unsafe.Pointer(memory))
		return 0, plugin.Errorf(plugin.CodeOf(err), "nccl: registering %d bytes at %#x: %w", m.Bytes, m.Address, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.memory == nil {
		e.memory = map[uint64]*C.nl_memory{}
	}
	e.lastKey++
	e.memory[e.lastKey] = memory
	return e.lastKey, nil
}

// Deregister has NCCL forget memory.
func (e *endpoint) Deregister(_ context.Context, key uint64) error {
	e.mu.Lock()
	memory := e.memory[key]
	e.mu.Unlock()
	if memory == nil {
		return plugin.Errorf(plugin.InvalidArgument, "nccl: key %d is of no registration", key)
	}
	err := e.native(C.nl_deregister_function(), uintptr(unsafe.Pointer(memory)))
	if plugin.CodeOf(err) == plugin.Timeout {
		return plugin.Errorf(plugin.Timeout, "nccl: ending a registration: %w", err)
	}
	e.mu.Lock()
	delete(e.memory, key)
	e.mu.Unlock()
	defer C.free(unsafe.Pointer(memory))
	if err != nil {
		return plugin.Errorf(plugin.CodeOf(err), "nccl: ending the registration of %d bytes at %#x: %w", int64(memory.bytes),
			uint64(memory.address), err)
	}
	return nil
}
