package host

import (
	"reflect"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// Element lists the types that slices of the functions below may hold. A named type counts as what it is made of, and
// int and uint as integers of 64 bits.
type Element interface {
	~int8 | ~uint8 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~int | ~uint | ~float32 | ~float64
}

// The collectives over slices, for communicators of host memory. The slices' type is the dtype, their lengths are the
// counts, and a length that does not fit is InvalidArgument, which the other ranks learn. In place, one slice is
// both arguments of AllReduce and Reduce; in the others it is as for Operation.

// AllReduce reduces send over all ranks into every rank's recv, of the same length.
func AllReduce[T Element](c *Communicator, send, recv []T, op plugin.Op) error {
	o := of(plugin.AllReduce, send, recv, len(send))
	o.Op = op
	return c.slices(&o, len(recv), len(send), "recv")
}

// Reduce reduces send over all ranks into root's recv, of the same length; other ranks' recv is ignored.
func Reduce[T Element](c *Communicator, send, recv []T, op plugin.Op, root int) error {
	if c.Rank() != root {
		recv = nil
	}
	o := of(plugin.Reduce, send, recv, len(send))
	o.Op, o.Root = op, root
	if c.Rank() != root {
		return c.slices(&o, 0, 0, "")
	}
	return c.slices(&o, len(recv), len(send), "recv")
}

// Broadcast sends root's data to every rank's data, of the same length.
func Broadcast[T Element](c *Communicator, data []T, root int) error {
	o := of(plugin.Broadcast, data, data, len(data))
	o.Root = root
	return c.slices(&o, 0, 0, "")
}

// AllGather concatenates every rank's send, in rank order, into every rank's recv, which is world times as long.
func AllGather[T Element](c *Communicator, send, recv []T) error {
	o := of(plugin.AllGather, send, recv, len(send))
	return c.slices(&o, len(recv), c.World()*len(send), "recv")
}

// ReduceScatter reduces send, which is world times as long as recv; rank r gets block r in its recv.
func ReduceScatter[T Element](c *Communicator, send, recv []T, op plugin.Op) error {
	o := of(plugin.ReduceScatter, send, recv, len(recv))
	o.Op = op
	return c.slices(&o, len(send), c.World()*len(recv), "send")
}

// AllToAll sends block r of send to rank r. Both slices have world blocks of one length.
func AllToAll[T Element](c *Communicator, send, recv []T) error {
	o := of(plugin.AllToAll, send, recv, len(send)/c.World())
	if len(send)%c.World() != 0 {
		return c.rejectSlices(plugin.AllToAll, "send has %d elements, which do not divide into %d blocks", len(send), c.World())
	}
	return c.slices(&o, len(recv), len(send), "recv")
}

// AllToAllV sends sendCounts[r] elements of send to rank r and receives recvCounts[r] from it. Blocks lie one behind
// the other, in the order of the ranks.
func AllToAllV[T Element](c *Communicator, send []T, sendCounts []int64, recv []T, recvCounts []int64) error {
	o := of(plugin.AllToAllV, send, recv, 0)
	o.SendCounts, o.RecvCounts = sendCounts, recvCounts
	if n := total(sendCounts); n > int64(len(send)) {
		return c.rejectSlices(o.Collective, "send has %d elements, and its counts reach to %d", len(send), n)
	}
	if n := total(recvCounts); n > int64(len(recv)) {
		return c.rejectSlices(o.Collective, "recv has %d elements, and its counts reach to %d", len(recv), n)
	}
	return c.slices(&o, 0, 0, "")
}

// Gather concatenates every rank's send, in rank order, into root's recv, which is world times as long.
func Gather[T Element](c *Communicator, send, recv []T, root int) error {
	o := of(plugin.Gather, send, recv, len(send))
	o.Root = root
	if c.Rank() != root {
		o.Recv = nil
		return c.slices(&o, 0, 0, "")
	}
	return c.slices(&o, len(recv), c.World()*len(send), "recv")
}

// Scatter sends block r of root's send, which is world times as long as recv, to rank r's recv.
func Scatter[T Element](c *Communicator, send, recv []T, root int) error {
	o := of(plugin.Scatter, send, recv, len(recv))
	o.Root = root
	if c.Rank() != root {
		o.Send = nil
		return c.slices(&o, 0, 0, "")
	}
	return c.slices(&o, len(send), c.World()*len(recv), "send")
}

// Send sends data to a peer, which calls Recv with a slice of the same length.
func Send[T Element](c *Communicator, data []T, peer int) error {
	o := of(plugin.Send, data, nil, len(data))
	o.Root = peer
	return c.slices(&o, 0, 0, "")
}

// Recv receives from a peer into data.
func Recv[T Element](c *Communicator, data []T, peer int) error {
	o := of(plugin.Recv, nil, data, len(data))
	o.Root = peer
	return c.slices(&o, 0, 0, "")
}

// of returns an operation over slices.
func of[T Element](v plugin.Collective, send, recv []T, count int) Operation {
	return Operation{Collective: v, DType: dtypes[reflect.TypeFor[T]().Kind()],
		Send: unsafe.Pointer(unsafe.SliceData(send)), Recv: unsafe.Pointer(unsafe.SliceData(recv)), Count: int64(count)}
}

// dtypes are the dtypes of elements, by the kind of the type that theirs is made of.
var dtypes = [...]plugin.DType{
	reflect.Int8: plugin.Int8, reflect.Uint8: plugin.Uint8, reflect.Int32: plugin.Int32, reflect.Uint32: plugin.Uint32,
	reflect.Int64: plugin.Int64, reflect.Uint64: plugin.Uint64, reflect.Int: plugin.Int64, reflect.Uint: plugin.Uint64,
	reflect.Float32: plugin.Float32, reflect.Float64: plugin.Float64,
}

// slices runs an operation over slices, one of which, named by what, has got elements and must have want.
func (c *Communicator) slices(o *Operation, got, want int, what string) error {
	if got != want {
		return c.rejectSlices(o.Collective, "%s has %d elements; want %d in a world of %d", what, got, want, c.World())
	}
	if c.device != nil {
		return c.rejectSlices(o.Collective, "slices are host memory, and this communicator moves memory of its GPU")
	}
	return c.reduce(o)
}

// rejectSlices returns an InvalidArgument and announces it to the other ranks.
func (c *Communicator) rejectSlices(v plugin.Collective, format string, args ...any) error {
	release, err := c.enter(v.String())
	if err != nil {
		return err
	}
	defer release()
	return c.ledger.Reject(v, plugin.Errorf(plugin.InvalidArgument, v.String()+" on rank %d: "+format,
		append([]any{c.Rank()}, args...)...))
}

// total is the sum of counts, which the call itself checks.
func total(counts []int64) (n int64) {
	for _, count := range counts {
		n += max(count, 0)
	}
	return n
}
