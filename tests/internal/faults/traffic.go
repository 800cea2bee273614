package faults

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// errWrong says that an operation ended well with a wrong result. It fails a
// test whatever else was to happen.
var errWrong = errors.New("wrong result")

// depth is the number of operations in a stream before the rank waits for them.
const depth = 5

// kinds is the number of collectives of the traffic.
const kinds = 7

// operation runs one of a rotation of collectives, small and large. Every
// depth-th call waits, where there is something to wait for, and checks its
// result, which must be right if nothing failed, whichever rank died meanwhile.
func (j *rank) operation(number int, most int64) error {
	comm, world := j.Comm, int64(j.Comm.World())
	n := []int64{8, most, 4096, most / 3 &^ 3}[number%4] / 4
	send, recv := j.Pointer(0), j.Pointer(world*most)
	root := number % comm.World()
	if number == 0 {
		if err := j.fill(world * most); err != nil {
			return err
		}
	}
	stream := j.Stream()
	var err error
	elements := n // of the result
	var want func(block int64) float32
	switch number / 4 % kinds {
	case 0:
		err = comm.AllReduce(send, recv, n, plugin.Float32, plugin.OpSum, stream)
		want = func(int64) float32 { return float32(world * (world + 1) / 2) }
	case 1:
		err = comm.AllGather(send, recv, n, plugin.Float32, stream)
		elements, want = n*world, func(b int64) float32 { return float32(b + 1) }
	case 2:
		err = comm.AllToAll(send, recv, n, plugin.Float32, stream)
		elements, want = n*world, func(b int64) float32 { return float32(b + 1) }
	case 3:
		err = comm.Broadcast(send, recv, n, plugin.Float32, root, stream)
		want = func(int64) float32 { return float32(root + 1) }
	case 4:
		err = comm.Reduce(send, recv, n, plugin.Float32, plugin.OpMax, root, stream)
		want = func(int64) float32 { return float32(world) }
		if comm.Rank() != root {
			want = nil
		}
	case 5:
		err = comm.ReduceScatter(send, recv, n, plugin.Float32, plugin.OpSum, stream)
		want = func(int64) float32 { return float32(world * (world + 1) / 2) }
	default:
		err = comm.Barrier(stream)
	}
	if err != nil {
		return err
	}
	if number%depth != depth-1 {
		return nil
	}
	from := world * most
	if err := errors.Join(j.Pull(from, from+4*elements), j.Settle()); err != nil || want == nil {
		return err
	}
	return j.checkResult(from, elements, n, want)
}

// fill gives every element of the send buffer the rank's number plus one.
func (j *rank) fill(bytes int64) error {
	for at := int64(0); at+4 <= bytes; at += 4 {
		binary.NativeEndian.PutUint32(j.Bytes[at:], math.Float32bits(float32(j.Comm.Rank()+1)))
	}
	return j.Push(0, bytes)
}

// checkResult looks at some elements of every block, the first and the last
// among them.
func (j *rank) checkResult(from, elements, block int64, want func(block int64) float32) error {
	values := unsafe.Slice((*float32)(unsafe.Pointer(&j.Bytes[from])), elements)
	for at := range elements {
		if within := at % block; within > 16 && within < block-16 && within%61 != 0 {
			continue
		}
		if got, w := values[at], want(at/block); got != w {
			return fmt.Errorf("%w: element %d of %d is %g, want %g", errWrong, at, elements, got, w)
		}
	}
	return nil
}

// gatherAll runs an all_gather of n elements, which every block of the result shows.
func (j *rank) gatherAll(n int64) error {
	return j.Comm.AllGather(j.Pointer(0), j.Pointer(4*n*int64(j.Comm.World())), n, plugin.Float32, j.Stream())
}
