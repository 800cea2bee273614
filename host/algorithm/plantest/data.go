package plantest

import (
	"encoding/binary"
	"math"

	"github.com/shunt-ccl/shunt/plugin"
)

// What fills and predicts buffers is not watched by the race detector, which
// makes it some fifty times slower: a buffer is one goroutine's own.

// mix returns a hash of its arguments.
//
//go:norace
func mix(a, b, c, d int) uint64 {
	x := uint64(a)*0x9E3779B97F4A7C15 ^ uint64(b)*0xC2B2AE3D27D4EB4F ^
		uint64(c)*0x165667B19E3779F9 ^ uint64(d)*0xD6E8FEB86659FD93
	x ^= x >> 29
	x *= 0xBF58476D1CE4E5B9
	return x ^ x>>32
}

// pattern fills b with what rank from sends to rank to (-1: to all) in
// operation index.
//
//go:norace
func pattern(b []byte, index, from, to int) {
	for i := range b {
		if i%8 == 0 && len(b)-i >= 8 {
			binary.LittleEndian.PutUint64(b[i:], mix(index, from, to, i))
		} else if i%8 == 0 {
			var last [8]byte
			binary.LittleEndian.PutUint64(last[:], mix(index, from, to, i))
			copy(b[i:], last[:])
		}
	}
}

// operand returns the number that a rank contributes to element i of a reduction.
// It is small, so that sums and products are exact in every dtype tested.
//
//go:norace
func operand(index, rank int, i int64) float64 { return float64(1 + mix(index, rank, 0, int(i))%3) }

// put stores a number as one element.
//
//go:norace
func put(b []byte, dtype plugin.DType, v float64) {
	switch dtype {
	case plugin.Int8, plugin.Uint8:
		b[0] = byte(int64(v))
	case plugin.Int32, plugin.Uint32:
		binary.LittleEndian.PutUint32(b, uint32(int64(v)))
	case plugin.Int64, plugin.Uint64:
		binary.LittleEndian.PutUint64(b, uint64(int64(v)))
	case plugin.Float32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v)))
	case plugin.Float64:
		binary.LittleEndian.PutUint64(b, math.Float64bits(v))
	case plugin.Bfloat16:
		bits := math.Float32bits(float32(v))
		binary.LittleEndian.PutUint16(b, uint16((bits+0x7FFF+(bits>>16&1))>>16))
	default:
		panic("plantest: no numbers of " + dtype.String())
	}
}

// input fills the send memory.
//
//go:norace
func (o *Operation) input(send []byte, world, rank, index int, displs []int64) {
	size := o.DType.Bytes()
	switch {
	case o.Collective == plugin.AllReduce || o.Collective == plugin.Reduce:
		for i := range int64(len(send)) / size {
			put(send[i*size:], o.DType, operand(index, rank, i))
		}
	case o.Collective.Reduces():
		for r := range world {
			for i := range o.count(rank, r) {
				put(send[displs[r]+i*size:], o.DType, operand(index+r*7919, rank, i))
			}
		}
	default:
		switch o.Collective {
		case plugin.AllToAll, plugin.AllToAllV, plugin.Scatter, plugin.ScatterV:
			if len(send) == 0 {
				return
			}
			for r := range world {
				pattern(send[displs[r]:displs[r]+o.count(rank, r)*size], index, rank, r)
			}
		default:
			pattern(send, index, rank, -1)
		}
	}
}

// result fills what the receive memory must hold.
//
//go:norace
func (o *Operation) result(recv []byte, world, rank, index int, displs []int64) {
	size := o.DType.Bytes()
	if len(recv) == 0 {
		return
	}
	switch o.Collective {
	case plugin.AllReduce, plugin.Reduce:
		for i := range int64(len(recv)) / size {
			put(recv[i*size:], o.DType, o.reduced(world, index, i))
		}
	case plugin.ReduceScatter, plugin.ReduceScatterV:
		for i := range o.count(rank, rank) {
			put(recv[i*size:], o.DType, o.reduced(world, index+rank*7919, i))
		}
	case plugin.Broadcast, plugin.Recv:
		pattern(recv, index, o.Root, -1)
	case plugin.AllGather, plugin.AllGatherV, plugin.Gather, plugin.GatherV:
		for r := range world {
			pattern(recv[displs[r]:displs[r]+o.count(r, rank)*size], index, r, -1)
		}
	case plugin.AllToAll, plugin.AllToAllV:
		for r := range world {
			pattern(recv[displs[r]:displs[r]+o.count(r, rank)*size], index, r, rank)
		}
	case plugin.Scatter, plugin.ScatterV:
		pattern(recv, index, o.Root, rank)
	}
}

// reduced returns element i of a reduction over all ranks.
//
//go:norace
func (o *Operation) reduced(world, index int, i int64) float64 {
	v := operand(index, 0, i)
	if o.Op == plugin.OpPremulSum {
		v *= o.Scalar
	}
	for r := 1; r < world; r++ {
		x := operand(index, r, i)
		switch o.Op {
		case plugin.OpSum, plugin.OpAvg:
			v += x
		case plugin.OpPremulSum:
			v += float64(x * o.Scalar)
		case plugin.OpProd:
			v *= x
		case plugin.OpMin:
			v = min(v, x)
		case plugin.OpMax:
			v = max(v, x)
		}
	}
	if o.Op != plugin.OpAvg {
		return v
	}
	switch o.DType {
	case plugin.Float32:
		return float64(float32(v) / float32(world))
	case plugin.Float64, plugin.Bfloat16:
		return v / float64(world)
	}
	return math.Trunc(v / float64(world))
}
