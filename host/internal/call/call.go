package call

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// Arguments are the caller's arguments of one operation. Counts and displacements are in elements of DType. Collective
// decides which fields matter, as in host.Operation, whose fields these are.
type Arguments struct {
	Collective plugin.Collective
	DType      plugin.DType
	Op         plugin.Op
	Scalar     float64
	Send, Recv unsafe.Pointer
	Count      int64
	Root       int

	SendCounts, SendDispls []int64
	RecvCounts, RecvDispls []int64
	DeviceCounts           DeviceCounts

	Window *Window // nil: none was given
	Offset int64
}

// DeviceCounts are host.DeviceCounts: where in device memory the counts of an all_to_all_v are.
type DeviceCounts struct {
	SendCounts, SendDispls     unsafe.Pointer
	RecvCounts, RecvDispls     unsafe.Pointer
	SendCapacity, RecvCapacity int64
}

// given reports whether an operation has counts in device memory.
func (d *DeviceCounts) given() bool { return *d != DeviceCounts{} }

// Window describes a window for the checks: memory that peers write to and read.
type Window struct {
	Owner  *Checker // of the communicator that made it
	ID     uint32
	Bytes  int64 // of each rank's part
	Closed bool
}

// Call is an operation that was checked: what the executor needs, in bytes.
type Call struct {
	Collective plugin.Collective
	DType      plugin.DType
	Op         plugin.Op
	Root       int
	Size       int64 // Request.Bytes, which the selector looks at; equal on all ranks
	Count      int64 // for records
	Send, Recv unsafe.Pointer
	Slots      [plugin.SlotArrays]int64
	Arrays     []int64 // 4*world, or nil where the collective uses none

	Symmetric      bool // the receive memory lies in a symmetric range, of which the slots hold number and offset
	OnDevice       bool // Arrays hold the addresses of counts in device memory
	ComparesLength bool // in a group: its plan compares the length of a message, the host need not

	Identity Identity // set by Identify
}

// RecordedType returns the dtype with the flags of the call, as control pages record it.
func (call *Call) RecordedType() uint32 {
	recorded := uint32(call.DType)
	if call.Symmetric {
		recorded |= executor.RecordSymmetric
	}
	if call.OnDevice {
		recorded |= executor.RecordDeviceCounts
	}
	return recorded
}

// Message returns the length and type of a send or receive, as the two ranks note it for each other.
func (call *Call) Message() executor.Message {
	return executor.MessageOf(call.Slots[plugin.SlotBytes], call.DType)
}

// Checker checks the arguments that one rank of a world gives.
type Checker struct {
	Rank, World int
	OnDevice    bool // the communicator is on CUDA memory
}

// Invalid returns an error about an argument, which names the operation and the rank.
func (c *Checker) Invalid(collective plugin.Collective, format string, args ...any) error {
	return plugin.Errorf(plugin.InvalidArgument, "%s on rank %d: "+format, append([]any{collective, c.Rank}, args...)...)
}
