package host

import (
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// DeviceCounts are the counts and displacements of an all_to_all_v in memory that
// the GPU reaches, int64 each, in elements. The kernel reads them when it runs, so
// what runs before it in the stream may compute them, and a graph uses those of each
// replay. They must not change while it runs, nor lie in its receive memory.
//
// As the host does not see them, it is the kernel that refuses counts that cannot
// be: negative ones, those that reach past the capacities, and a count to this rank
// itself that is not the one from itself. The communicator fails then, on all ranks,
// with InvalidArgument, which the next call, Synchronize or Err tells. Such a rank has
// sent and stored nothing; the others may have exchanged what is between them.
type DeviceCounts struct {
	// Device addresses of one int64 for each rank, aligned to 8. Nil displacements
	// mean packed in rank order.
	SendCounts, SendDispls unsafe.Pointer
	RecvCounts, RecvDispls unsafe.Pointer
	// Elements that the memory at Send and at Recv has room for.
	SendCapacity, RecvCapacity int64
}

// given reports whether an operation has such counts.
func (d *DeviceCounts) given() bool { return *d != DeviceCounts{} }

// AllToAllVOnDevice is AllToAllV with counts in the GPU's memory. All ranks must
// call it, or none. It takes up to a microsecond longer than with counts on the host, as
// no launch can be fitted to messages that are not known yet.
func (c *Communicator) AllToAllVOnDevice(send, recv unsafe.Pointer, counts DeviceCounts, dtype plugin.DType, stream Stream) error {
	return c.Do(&Operation{Collective: plugin.AllToAllV, Send: send, Recv: recv, DeviceCounts: counts, DType: dtype, Stream: stream})
}

// ExplainOnDevice is Explain for all_to_all_v with counts on the device. Its messages
// may be of any length.
func (c *Communicator) ExplainOnDevice(dtype plugin.DType) (selector.Explanation, error) {
	if !dtype.Valid() {
		return selector.Explanation{}, plugin.Errorf(plugin.InvalidArgument, "explain: dtype %d", dtype)
	}
	if c.device == nil {
		return selector.Explanation{}, plugin.Errorf(plugin.Unsupported, "all_to_all_v, counts on the device: this communicator is not on CUDA memory")
	}
	key := signatureOf(plugin.AllToAllV, dtype, 0)
	key.counts = true
	return c.explain(key, 0)
}

// deviceCounts checks what can be known of counts on the device, fills the arrays
// with where they are, and says how long the caller's memory is.
func (c *Communicator) deviceCounts(op *Operation, call *call, size int64, arrays []int64) (send, recv int64, err error) {
	d := &op.DeviceCounts
	switch {
	case op.Collective != plugin.AllToAllV:
		return 0, 0, c.invalid(op, "only all_to_all_v takes counts in device memory")
	case c.device == nil:
		return 0, 0, c.invalid(op, "counts in device memory need a communicator on CUDA memory")
	case op.SendCounts != nil || op.SendDispls != nil || op.RecvCounts != nil || op.RecvDispls != nil:
		return 0, 0, c.invalid(op, "counts are either on the device or on the host, not both")
	}
	lengths := [2]int64{}
	for i, side := range []struct {
		name     string
		capacity int64
	}{{"send", d.SendCapacity}, {"receive", d.RecvCapacity}} {
		var ok bool
		if side.capacity < 0 {
			return 0, 0, c.invalid(op, "%s capacity %d is negative", side.name, side.capacity)
		}
		if lengths[i], ok = mulBytes(side.capacity, size); !ok {
			return 0, 0, c.invalid(op, "%s capacity %d of %s overflows", side.name, side.capacity, op.DType)
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
		at, bytes := uintptr(array.at), uintptr(8*c.world)
		switch _, carry := bits.Add64(uint64(at), uint64(bytes), 0); {
		case at == 0 && array.optional:
		case at == 0:
			return 0, 0, c.invalid(op, "%s in device memory are null", array.name)
		case at%8 != 0:
			return 0, 0, c.invalid(op, "%s in device memory, %p, are not aligned to 8 bytes", array.name, array.at)
		case carry != 0:
			return 0, 0, c.invalid(op, "%s in device memory, %p, wrap around the address space", array.name, array.at)
		case at < from+length && from < at+bytes:
			return 0, 0, c.invalid(op, "%s in device memory, %p, lie in the receive memory %p of %d bytes", array.name, array.at, op.Recv, length)
		}
		arrays[i*c.world] = int64(at)
	}
	call.arrays, call.deviceCounts = arrays, true
	return lengths[0], lengths[1], nil
}

// inspectCounts is inspect of counts on the device.
func (d *device) inspectCounts(call *call) error {
	for i, name := range []string{"send counts", "send displacements", "receive counts", "receive displacements"} {
		at := call.arrays[i*d.comm.world]
		if at == 0 {
			continue
		}
		p, err := d.driver.Pointer(d.context, cuda.Ptr(at))
		if err != nil {
			return err
		}
		if p.Kind == cuda.PointerUnknown {
			return plugin.Errorf(plugin.InvalidArgument, "%s on rank %d: %s %#x are not in the GPU's memory", call.collective, d.comm.rank, name, at)
		}
	}
	return nil
}

// impossibleCount words why a kernel of this rank refused a count for a peer that it
// has read from device memory.
func (c *Communicator) impossibleCount(peer int, own, theirs [3]uint64) *plugin.Error {
	count, displ, room := int64(own[0]), int64(own[1]), int64(theirs[0])
	side := "send"
	if own[2] == 1 {
		side = "receive"
	}
	var text string
	switch {
	case own[2] == 2:
		text = fmt.Sprintf("send count %d of this rank to itself differs from receive count %d", count, room)
	case count < 0:
		text = fmt.Sprintf("%s count %d for rank %d is negative", side, count, peer)
	case displ < 0:
		text = fmt.Sprintf("%s displacement %d for rank %d is negative", side, displ, peer)
	default:
		text = fmt.Sprintf("%s count %d at displacement %d for rank %d reaches past the capacity of %d elements", side, count, displ, peer, room)
	}
	return &plugin.Error{Code: plugin.InvalidArgument, Rank: c.rank, Message: fmt.Sprintf("counts in device memory on rank %d: %s", c.rank, text)}
}
