package call

import (
	"math/bits"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// deviceCounts checks what can be known of counts on the device, fills the arrays
// with where they are, and says how long the caller's memory is.
func (c *Checker) deviceCounts(op *Arguments, call *Call, size int64, arrays []int64) (send, recv int64, err error) {
	d := &op.DeviceCounts
	switch {
	case op.Collective != plugin.AllToAllV:
		return 0, 0, c.Invalid(op.Collective, "only all_to_all_v takes counts in device memory")
	case !c.OnDevice:
		return 0, 0, c.Invalid(op.Collective, "counts in device memory need a communicator on CUDA memory")
	case op.SendCounts != nil || op.SendDispls != nil || op.RecvCounts != nil || op.RecvDispls != nil:
		return 0, 0, c.Invalid(op.Collective, "counts are either on the device or on the host, not both")
	}
	lengths := [2]int64{}
	for i, side := range []struct {
		name     string
		capacity int64
	}{{"send", d.SendCapacity}, {"receive", d.RecvCapacity}} {
		var ok bool
		if side.capacity < 0 {
			return 0, 0, c.Invalid(op.Collective, "%s capacity %d is negative", side.name, side.capacity)
		}
		if lengths[i], ok = mulBytes(side.capacity, size); !ok {
			return 0, 0, c.Invalid(op.Collective, "%s capacity %d of %s overflows", side.name, side.capacity, op.DType)
		}
	}
	from, length := uintptr(op.Recv), uintptr(lengths[1])
	for i, array := range []struct {
		name     string
		at       unsafe.Pointer
		optional bool
	}{
		{"send counts", d.SendCounts, false}, {"send displacements", d.SendDispls, true},
		{"receive counts", d.RecvCounts, false}, {"receive displacements", d.RecvDispls, true},
	} {
		at, bytes := uintptr(array.at), uintptr(8*c.World)
		switch _, carry := bits.Add64(uint64(at), uint64(bytes), 0); {
		case at == 0 && array.optional:
		case at == 0:
			return 0, 0, c.Invalid(op.Collective, "%s in device memory are null", array.name)
		case at%8 != 0:
			return 0, 0, c.Invalid(op.Collective, "%s in device memory, %p, are not aligned to 8 bytes", array.name, array.at)
		case carry != 0:
			return 0, 0, c.Invalid(op.Collective, "%s in device memory, %p, wrap around the address space", array.name, array.at)
		case at < from+length && from < at+bytes:
			return 0, 0, c.Invalid(op.Collective, "%s in device memory, %p, lie in the receive memory %p of %d bytes",
				array.name, array.at, op.Recv, length)
		}
		arrays[i*c.World] = int64(at)
	}
	call.Arrays, call.OnDevice = arrays, true
	return lengths[0], lengths[1], nil
}
