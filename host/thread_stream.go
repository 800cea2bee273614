package host

import (
	"slices"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// The handle CU_STREAM_PER_THREAD means another stream in every thread, so what is
// put into it must be put there by the caller's thread. Calls in that stream wait
// for their turn instead of being queued for another goroutine, and have no block
// limit. Start and RunTogether reject that stream, as other threads put their operations into streams.
// A goroutine that uses the handle has locked its thread.

// threads reports whether an operation runs in the calling thread's own stream.
func (c *Communicator) threads(op *Operation) bool {
	return c.device != nil && streamOf(op.Stream) == cuda.PerThreadStream
}

func (c *Communicator) anyThreads(operations []Operation) bool {
	return c.device != nil && slices.ContainsFunc(operations, func(op Operation) bool { return c.threads(&op) })
}

// rejectThreadStream rejects what another thread would put into its own stream; what names the call.
func (c *Communicator) rejectThreadStream(what string, operations []Operation) error {
	if !c.anyThreads(operations) {
		return nil
	}
	return plugin.Errorf(plugin.InvalidArgument, "%s on rank %d: stream %d is the calling thread's own (CU_STREAM_PER_THREAD), "+
		"and another thread puts the operations into streams; pass a stream that was created", what, c.Rank(),
		cuda.PerThreadStream)
}
