package host

import (
	"context"
	"log/slog"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/job"
	"github.com/shunt-ccl/shunt/plugin"
)

// Options say how to join. The zero value takes everything from the environment: rank and world from the launcher, the
// rest from SHUNT_* variables.
type Options struct {
	Rank, World int // World 0: both from the environment
	// where the ranks meet: "tcp://host:port", "file:///path" or a unique id, see bootstrap.NewID; "" and "env": from
	// the environment
	ID string
	// as in SHUNT_TRANSPORTS; none: from there, else all that are registered and those of SHUNT_PLUGIN_DIR
	Transports []string
	Algo       string            // as SHUNT_ALGO, equal on all ranks; "": from there
	TuningFile string            // as SHUNT_TUNING_FILE; rank 0's counts; "": from there
	Timeout    time.Duration     // deadline of one operation; 0: SHUNT_TIMEOUT
	Memory     plugin.MemoryKind // where all send and receive memory lies
	Device     int               // with Memory cuda: the CUDA ordinal, or AutoDevice
	// most multiprocessors that a communicator's kernels occupy at once, the smallest of the ranks' values; 0:
	// SHUNT_MAX_SMS
	MaxSMs int
	Driver cuda.Driver // with Memory cuda; nil: cuda.Open
	// gets the records from a goroutine of Shunt's, and may block or call Shunt; nil: text on standard error, from
	// SHUNT_LOG on
	Logger *slog.Logger
}

// AutoDevice, as Options.Device, is the device of this process's number among the ranks of its host, as the launcher
// says it (LOCAL_RANK of torchrun, and what Open MPI, MPICH and Slurm have in its place; without any, the rank), modulo
// the number of devices that the process sees.
const AutoDevice = job.AutoDevice

// Stream is a CUDA stream, such as a cuda.Stream; nil is the default stream. Calls on host memory do not look at it.
type Stream interface {
	// Handle is the CUstream.
	Handle() unsafe.Pointer
}

// Operation is one call. Which fields matter depends on Collective; counts and displacements are in elements of DType.
// Memory stays the caller's, is aligned to the element, and must stay valid until the operation has ended.
//
// In place is as in NCCL: all_gather and gather with Send at Recv + rank * Count elements, reduce_scatter and scatter
// with Recv at Send + rank * Count (the varying ones at this rank's block), all_reduce, reduce and broadcast with Send
// == Recv. Other overlaps are InvalidArgument, also of the blocks that are received or, in place, reduced.
type Operation struct {
	Collective plugin.Collective
	DType      plugin.DType
	Op         plugin.Op
	Scalar     float64 // premul_sum only
	Send, Recv unsafe.Pointer
	Count      int64
	Root       int // or the peer of send, recv, put, get, signal and wait

	// Varying collectives: one entry per rank. Displacements may be nil, which means packed in rank order. all_gather_v
	// and gather_v (at the root) use Recv*, reduce_scatter_v and scatter_v (at the root) Send*, all_to_all_v both.
	// Count is this rank's own for all_gather_v, gather_v and scatter_v.
	SendCounts, SendDispls []int64
	RecvCounts, RecvDispls []int64
	// all_to_all_v on device memory: in place of the four above; zero: none. Each of its counts and displacements
	// stands for Count elements, as those of a row; 0: for one.
	DeviceCounts DeviceCounts

	Window *Window // one-sided operations
	Offset int64   // put and get: bytes from the start of the peer's window; wait: how many signals to wait for

	Stream Stream
}

// check turns an operation into a call. arrays is scratch of 4*world entries that lives as long as the call.
func (c *Communicator) check(op *Operation, arrays []int64, into *call.Call) error {
	return c.checker.Check(op.arguments(), arrays, into)
}

// arguments returns the fields of the operation that are checked. call.Arguments begins as Operation does, field by
// field, and a Window with the facts that it points to; TestOperationsBeginWithTheirArguments keeps it so. A copy would
// cost every call on a GPU some 50 ns.
func (op *Operation) arguments() *call.Arguments { return (*call.Arguments)(unsafe.Pointer(op)) }

// The communicator's collectives. Every method returns when the result is there (host memory) or enqueued (device
// memory). All are thin wrappers of Do, which takes any Operation, premul_sum with its scalar too; Start is its
// non-blocking form.

// AllReduce reduces count elements over all ranks into every rank's recv.
func (c *Communicator) AllReduce(send, recv unsafe.Pointer, count int64, dtype plugin.DType, op plugin.Op,
	stream Stream) error {
	return c.reduce(&Operation{Collective: plugin.AllReduce, Send: send, Recv: recv, Count: count, DType: dtype, Op: op,
		Stream: stream})
}

// Reduce reduces count elements over all ranks into root's recv.
func (c *Communicator) Reduce(send, recv unsafe.Pointer, count int64, dtype plugin.DType, op plugin.Op, root int,
	stream Stream) error {
	return c.reduce(&Operation{Collective: plugin.Reduce, Send: send, Recv: recv, Count: count, DType: dtype, Op: op,
		Root: root, Stream: stream})
}

// reduce runs a reduction that was given no scalar.
func (c *Communicator) reduce(op *Operation) error {
	if op.Op == plugin.OpPremulSum {
		return c.rejectSlices(op.Collective, "premul_sum needs a scalar: use Do")
	}
	return c.Do(op)
}

// Broadcast sends root's count elements at send to every rank's recv.
func (c *Communicator) Broadcast(send, recv unsafe.Pointer, count int64, dtype plugin.DType, root int,
	stream Stream) error {
	return c.Do(&Operation{Collective: plugin.Broadcast, Send: send, Recv: recv, Count: count, DType: dtype, Root: root,
		Stream: stream})
}

// AllGather concatenates every rank's count elements, in rank order, into every rank's recv of world*count elements.
func (c *Communicator) AllGather(send, recv unsafe.Pointer, count int64, dtype plugin.DType, stream Stream) error {
	return c.Do(&Operation{Collective: plugin.AllGather, Send: send, Recv: recv, Count: count, DType: dtype,
		Stream: stream})
}

// AllGatherV is like AllGather, with counts[r] elements of rank r placed at displs[r]; nil displacements mean packed.
func (c *Communicator) AllGatherV(send, recv unsafe.Pointer, counts, displs []int64, dtype plugin.DType,
	stream Stream) error {
	op := Operation{Collective: plugin.AllGatherV, Send: send, Recv: recv, RecvCounts: counts, RecvDispls: displs,
		DType: dtype, Stream: stream}
	if c.Rank() < len(counts) {
		op.Count = counts[c.Rank()]
	}
	return c.Do(&op)
}

// ReduceScatter reduces world*count elements; rank r receives block r of count elements.
func (c *Communicator) ReduceScatter(send, recv unsafe.Pointer, count int64, dtype plugin.DType, op plugin.Op,
	stream Stream) error {
	return c.reduce(&Operation{Collective: plugin.ReduceScatter, Send: send, Recv: recv, Count: count, DType: dtype,
		Op: op, Stream: stream})
}

// ReduceScatterV is like ReduceScatter, with blocks of counts[r] elements at displs[r] of send; nil displacements mean
// packed.
func (c *Communicator) ReduceScatterV(send, recv unsafe.Pointer, counts, displs []int64, dtype plugin.DType,
	op plugin.Op, stream Stream) error {
	return c.reduce(&Operation{Collective: plugin.ReduceScatterV, Send: send, Recv: recv, SendCounts: counts,
		SendDispls: displs, DType: dtype, Op: op, Stream: stream})
}

// AllToAll sends block r of count elements to rank r.
func (c *Communicator) AllToAll(send, recv unsafe.Pointer, count int64, dtype plugin.DType, stream Stream) error {
	return c.Do(&Operation{Collective: plugin.AllToAll, Send: send, Recv: recv, Count: count, DType: dtype,
		Stream: stream})
}

// AllToAllV sends sendCounts[r] elements at sendDispls[r] to rank r and receives recvCounts[r] elements from it at
// recvDispls[r]. Each pair of ranks must agree on its two counts. Nil displacements mean packed.
func (c *Communicator) AllToAllV(send unsafe.Pointer, sendCounts, sendDispls []int64, recv unsafe.Pointer, recvCounts,
	recvDispls []int64, dtype plugin.DType, stream Stream) error {
	return c.Do(&Operation{Collective: plugin.AllToAllV, Send: send, SendCounts: sendCounts, SendDispls: sendDispls,
		Recv: recv, RecvCounts: recvCounts, RecvDispls: recvDispls, DType: dtype, Stream: stream})
}

// Gather concatenates every rank's count elements, in rank order, at root.
func (c *Communicator) Gather(send, recv unsafe.Pointer, count int64, dtype plugin.DType, root int,
	stream Stream) error {
	return c.Do(&Operation{Collective: plugin.Gather, Send: send, Recv: recv, Count: count, DType: dtype, Root: root,
		Stream: stream})
}

// GatherV gathers count elements of this rank at root, which gives every rank's count and displacement; other ranks may
// pass nil for both.
func (c *Communicator) GatherV(send unsafe.Pointer, count int64, recv unsafe.Pointer, counts, displs []int64,
	dtype plugin.DType, root int, stream Stream) error {
	return c.Do(&Operation{Collective: plugin.GatherV, Send: send, Count: count, Recv: recv, RecvCounts: counts,
		RecvDispls: displs, DType: dtype, Root: root, Stream: stream})
}

// Scatter sends root's block r of count elements to rank r.
func (c *Communicator) Scatter(send, recv unsafe.Pointer, count int64, dtype plugin.DType, root int,
	stream Stream) error {
	return c.Do(&Operation{Collective: plugin.Scatter, Send: send, Recv: recv, Count: count, DType: dtype, Root: root,
		Stream: stream})
}

// ScatterV scatters root's blocks, of which this rank receives count elements; ranks other than root may pass nil
// counts and displacements.
func (c *Communicator) ScatterV(send unsafe.Pointer, counts, displs []int64, recv unsafe.Pointer, count int64,
	dtype plugin.DType, root int, stream Stream) error {
	return c.Do(&Operation{Collective: plugin.ScatterV, Send: send, SendCounts: counts, SendDispls: displs, Recv: recv,
		Count: count, DType: dtype, Root: root, Stream: stream})
}

// Send sends count elements to peer; it may return once they are buffered. The peer's Recv must be of as many bytes.
// Another length is Mismatch on the receiver, and on the sender then or in a later call.
func (c *Communicator) Send(send unsafe.Pointer, count int64, dtype plugin.DType, peer int, stream Stream) error {
	return c.Do(&Operation{Collective: plugin.Send, Send: send, Count: count, DType: dtype, Root: peer, Stream: stream})
}

// Recv receives count elements from peer, in the order peer sent them.
func (c *Communicator) Recv(recv unsafe.Pointer, count int64, dtype plugin.DType, peer int, stream Stream) error {
	return c.Do(&Operation{Collective: plugin.Recv, Recv: recv, Count: count, DType: dtype, Root: peer, Stream: stream})
}

// Barrier returns after every rank has entered it.
func (c *Communicator) Barrier(stream Stream) error {
	return c.Do(&Operation{Collective: plugin.Barrier, Stream: stream})
}

// Group runs several operations as one: they make progress together, so a rank may send to and receive from any set of
// peers without ordering the calls. Add collects them; Run and Start run them. It takes sends, receives and one-sided
// operations.
//
// On device memory all operations of a group have one stream. A group is rounds, one after the other: the k-th message
// to and the k-th from every peer are in round k. Ranks that all group their messages never wait for each other in a
// circle. A rank whose group has more than one message to or from a peer needs that peer to group its own of them too:
// one that receives twice and then sends twice, without a group, would wait for a second message whose round waits for
// what it sends later.
type Group struct{ operations []Operation }

// Add puts an operation into the group, with copies of its counts and displacements. Run or Start runs it.
func (g *Group) Add(op Operation) {
	op.copyCounts()
	g.operations = append(g.operations, op)
}

// Run runs the group's operations together and empties the group.
func (g *Group) Run(c *Communicator) error {
	operations := g.operations
	g.operations = g.operations[:0]
	return c.doGroup(context.Background(), operations)
}
