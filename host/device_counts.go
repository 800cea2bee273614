package host

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// DeviceCounts are the counts and displacements of an all_to_all_v in memory that the GPU reaches, int64 each, in
// elements or, as Operation.Count says, rows of elements. The kernel reads them when it runs, so what runs before it in
// the stream may compute them, and a graph uses those of each replay. They must not change while it runs, nor lie in
// its receive memory.
//
// As the host does not see them, the kernel rejects invalid counts: negative
// ones, those that reach past the capacities, and a count to this rank
// itself that is not the one from itself. The communicator fails then, on all ranks,
// with InvalidArgument, which the next call, Synchronize or Err tells. Such a rank has
// sent and stored nothing; the others may have exchanged what is between them.
type DeviceCounts struct {
	// Device addresses of one int64 for each rank, aligned to 8. Nil displacements
	// mean packed in rank order.
	SendCounts, SendDispls unsafe.Pointer
	RecvCounts, RecvDispls unsafe.Pointer
	// Elements that the memory at Send and at Recv has room for, whatever a count stands for.
	SendCapacity, RecvCapacity int64
}

// AllToAllVOnDevice is like AllToAllV, with counts in the GPU's memory. All ranks must
// call it, or none. It takes up to a microsecond longer than with counts on the host, as
// no launch can be fitted to messages that are not known yet.
func (c *Communicator) AllToAllVOnDevice(send, recv unsafe.Pointer, counts DeviceCounts, dtype plugin.DType,
	stream Stream) error {
	return c.Do(&Operation{Collective: plugin.AllToAllV, Send: send, Recv: recv, DeviceCounts: counts, DType: dtype,
		Stream: stream})
}

// ExplainOnDevice is like Explain, for all_to_all_v with counts on the device. Its
// messages may be of any length.
func (c *Communicator) ExplainOnDevice(dtype plugin.DType) (selector.Explanation, error) {
	if !dtype.Valid() {
		return selector.Explanation{}, plugin.Errorf(plugin.InvalidArgument, "explain: dtype %d is unknown", dtype)
	}
	if c.device == nil {
		return selector.Explanation{}, plugin.Errorf(plugin.Unsupported,
			"all_to_all_v, counts on the device: this communicator is not on CUDA memory")
	}
	key := call.SignatureOf(plugin.AllToAllV, dtype, 0)
	key.OnDevice = true
	return c.explain(key, dtype, 0)
}
