package host

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// call is an Operation that was checked: what the executor needs, in bytes.
type call struct {
	collective plugin.Collective
	dtype      plugin.DType
	op         plugin.Op
	root       int
	size       int64 // Request.Bytes: what the selector looks at; equal on all ranks
	count      int64 // for records
	lengths    bool  // of a group's: its plan compares; see program
	send, recv unsafe.Pointer
	symmetric  *symmetricRange // that the receive memory lies in; nil: none
	slots      [plugin.SlotArrays]int64
	arrays     []int64 // 4*world, or nil where the collective uses none

	deviceCounts bool // arrays say where on the device they are

	identity identity // of a call that was checked
}

// check validates op and fills the call. arrays is scratch of 4*world entries
// that lives as long as the call. It touches no memory of the user.
func (c *Communicator) check(op *Operation, arrays []int64, call *call) error {
	if !op.Collective.Valid() {
		return plugin.Errorf(plugin.InvalidArgument, "unknown collective %d", uint32(op.Collective))
	}
	if !op.DType.Valid() {
		return c.invalid(op, "unknown dtype %d", uint32(op.DType))
	}
	reduces := op.Collective.Reduces()
	if reduces && !op.Op.Valid() {
		return c.invalid(op, "unknown reduction op %d", uint32(op.Op))
	}
	if op.Count < 0 {
		return c.invalid(op, "count %d is negative", op.Count)
	}
	size := op.DType.Bytes()
	bytes, ok := mulBytes(op.Count, size)
	if !ok {
		return c.invalid(op, "count %d of %s overflows", op.Count, op.DType)
	}
	if usesRoot(op.Collective) && (op.Root < 0 || op.Root >= c.world) {
		what := "root"
		if op.Collective.PointToPoint() {
			what = "peer"
		}
		return c.invalid(op, "%s %d is not a rank of a world of %d", what, op.Root, c.world)
	}
	call.begin(op, bytes)
	if reduces {
		call.op = op.Op
		call.slots[plugin.SlotScalar] = int64(math.Float64bits(op.Scalar))
	}
	sendBytes, recvBytes, err := c.extents(op, call, size, bytes, arrays)
	if err != nil {
		return err
	}
	if err := c.checkMemory(op, "send", op.Send, sendBytes, size); err != nil {
		return err
	}
	if err := c.checkMemory(op, "recv", op.Recv, recvBytes, size); err != nil {
		return err
	}
	if err := c.checkOverlap(op, sendBytes, recvBytes, bytes); err != nil {
		return err
	}
	call.slots[plugin.SlotSendBytes] = sendBytes
	call.slots[plugin.SlotRecvBytes] = recvBytes
	if len(c.symmetric.sorted) > 0 {
		c.symmetric.mark(call, c.world)
	}
	return nil
}

// begin fills the part of a call that needs no check, field by field: a copy of a
// whole call would wait for the stores that have just made it.
func (call *call) begin(op *Operation, bytes int64) {
	call.collective, call.dtype, call.op, call.root = op.Collective, op.DType, 0, op.Root
	call.size, call.count = bytes, op.Count
	call.send, call.recv = op.Send, op.Recv
	clear(call.slots[:])
	call.slots[plugin.SlotCount] = op.Count
	call.slots[plugin.SlotBytes] = bytes
	call.slots[plugin.SlotRoot] = int64(op.Root)
	call.arrays, call.symmetric, call.deviceCounts = nil, nil, false
}

// extents fills the arrays and says how long the caller's memory must be.
func (c *Communicator) extents(op *Operation, call *call, size, bytes int64, arrays []int64) (send, recv int64, err error) {
	if op.DeviceCounts.given() {
		clear(arrays)
		call.size, call.slots[plugin.SlotBytes] = 0, 0
		return c.deviceCounts(op, call, size, arrays)
	}
	world := c.world
	sendCounts, sendDispls := arrays[:world], arrays[world:2*world]
	recvCounts, recvDispls := arrays[2*world:3*world], arrays[3*world:4*world]
	isRoot := op.Root == c.rank
	switch op.Collective {
	case plugin.AllReduce:
		return bytes, bytes, nil
	case plugin.Reduce:
		if isRoot {
			return bytes, bytes, nil
		}
		return bytes, 0, nil
	case plugin.Broadcast:
		if isRoot {
			return bytes, bytes, nil
		}
		return 0, bytes, nil
	case plugin.Send:
		return bytes, 0, nil
	case plugin.Recv:
		return 0, bytes, nil
	case plugin.Barrier:
		call.begin(&Operation{Collective: plugin.Barrier}, 0) // the other fields mean nothing, and ranks are compared
		return 0, 0, nil
	case plugin.Put, plugin.Get, plugin.Signal, plugin.Wait:
		return c.windowExtents(op, call, bytes)
	}

	clear(arrays)
	call.arrays = arrays
	switch op.Collective {
	case plugin.AllGather:
		recv, err = c.fillEven(op, recvCounts, recvDispls, bytes)
		send = bytes
	case plugin.AllGatherV:
		if recv, call.size, err = c.fillVarying(op, "receive", recvCounts, recvDispls, op.RecvCounts, op.RecvDispls, size); err == nil {
			if send = recvCounts[c.rank]; send != bytes {
				err = c.invalid(op, "count %d differs from receive count %d of this rank", op.Count, op.RecvCounts[c.rank])
			}
		}
	case plugin.ReduceScatter:
		send, err = c.fillEven(op, sendCounts, sendDispls, bytes)
		recv = bytes
	case plugin.ReduceScatterV:
		if send, call.size, err = c.fillVarying(op, "send", sendCounts, sendDispls, op.SendCounts, op.SendDispls, size); err == nil {
			recv = sendCounts[c.rank]
			call.count = recv / size
			call.slots[plugin.SlotCount], call.slots[plugin.SlotBytes] = call.count, recv
		}
	case plugin.AllToAll:
		if send, err = c.fillEven(op, sendCounts, sendDispls, bytes); err == nil {
			recv, err = c.fillEven(op, recvCounts, recvDispls, bytes)
		}
	case plugin.AllToAllV:
		call.size = 0
		call.slots[plugin.SlotBytes] = 0
		if send, _, err = c.fillVarying(op, "send", sendCounts, sendDispls, op.SendCounts, op.SendDispls, size); err == nil {
			recv, _, err = c.fillVarying(op, "receive", recvCounts, recvDispls, op.RecvCounts, op.RecvDispls, size)
		}
		if err == nil && sendCounts[c.rank] != recvCounts[c.rank] {
			err = c.invalid(op, "send count %d of this rank to itself differs from receive count %d", op.SendCounts[c.rank], op.RecvCounts[c.rank])
		}
	case plugin.Gather, plugin.GatherV:
		sendCounts[op.Root] = bytes
		send = bytes
		if isRoot {
			if op.Collective == plugin.Gather {
				recv, err = c.fillEven(op, recvCounts, recvDispls, bytes)
			} else if recv, _, err = c.fillVarying(op, "receive", recvCounts, recvDispls, op.RecvCounts, op.RecvDispls, size); err == nil && recvCounts[c.rank] != bytes {
				err = c.invalid(op, "count %d differs from receive count %d of this rank", op.Count, op.RecvCounts[c.rank])
			}
		}
		if op.Collective == plugin.GatherV {
			call.size = 0
		}
	case plugin.Scatter, plugin.ScatterV:
		recvCounts[op.Root] = bytes
		recv = bytes
		if isRoot {
			if op.Collective == plugin.Scatter {
				send, err = c.fillEven(op, sendCounts, sendDispls, bytes)
			} else if send, _, err = c.fillVarying(op, "send", sendCounts, sendDispls, op.SendCounts, op.SendDispls, size); err == nil && sendCounts[c.rank] != bytes {
				err = c.invalid(op, "count %d differs from send count %d of this rank", op.Count, op.SendCounts[c.rank])
			}
		}
		if op.Collective == plugin.ScatterV {
			call.size = 0
		}
	}
	return send, recv, err
}

// fillEven lays out world blocks of equal length and returns their sum.
func (c *Communicator) fillEven(op *Operation, counts, displs []int64, bytes int64) (int64, error) {
	total, ok := mulBytes(bytes, int64(c.world))
	if !ok {
		return 0, c.invalid(op, "count %d of %s times world %d overflows", op.Count, op.DType, c.world)
	}
	at := int64(0)
	for r := range counts {
		counts[r], displs[r] = bytes, at
		at += bytes
	}
	return total, nil
}

// fillVarying checks a caller's counts and displacements, lays them out in
// bytes and returns the extent they reach to and the largest count.
func (c *Communicator) fillVarying(op *Operation, side string, counts, displs, userCounts, userDispls []int64, size int64) (extent, largest int64, err error) {
	if len(userCounts) != c.world {
		return 0, 0, c.invalid(op, "%d %s counts for a world of %d", len(userCounts), side, c.world)
	}
	if userDispls != nil && len(userDispls) != c.world {
		return 0, 0, c.invalid(op, "%d %s displacements for a world of %d", len(userDispls), side, c.world)
	}
	at := int64(0)
	for r, count := range userCounts {
		if count < 0 {
			return 0, 0, c.invalid(op, "%s count %d for rank %d is negative", side, count, r)
		}
		bytes, ok := mulBytes(count, size)
		if !ok {
			return 0, 0, c.invalid(op, "%s count %d of %s for rank %d overflows", side, count, op.DType, r)
		}
		displ := at
		if userDispls != nil {
			if userDispls[r] < 0 {
				return 0, 0, c.invalid(op, "%s displacement %d for rank %d is negative", side, userDispls[r], r)
			}
			if displ, ok = mulBytes(userDispls[r], size); !ok {
				return 0, 0, c.invalid(op, "%s displacement %d of %s for rank %d overflows", side, userDispls[r], op.DType, r)
			}
		}
		if displ > math.MaxInt64-bytes {
			return 0, 0, c.invalid(op, "%s count and displacement for rank %d overflow", side, r)
		}
		counts[r], displs[r] = bytes, displ
		at = displ + bytes
		if bytes > 0 {
			extent = max(extent, at)
		}
		largest = max(largest, bytes)
	}
	return extent, largest, nil
}

func (c *Communicator) checkMemory(op *Operation, side string, p unsafe.Pointer, bytes, size int64) error {
	if bytes == 0 {
		return nil
	}
	if p == nil {
		return c.invalid(op, "%s memory is null but %d bytes are needed", side, bytes)
	}
	if uintptr(p)%uintptr(size) != 0 {
		return c.invalid(op, "%s memory %p is not aligned to the %d bytes of %s", side, p, size, op.DType)
	}
	if _, carry := bits.Add64(uint64(uintptr(p)), uint64(bytes), 0); carry != 0 {
		return c.invalid(op, "%s memory %p of %d bytes wraps around the address space", side, p, bytes)
	}
	return nil
}

// checkOverlap refuses send and receive memory that overlap other than in the
// in-place forms of NCCL.
func (c *Communicator) checkOverlap(op *Operation, sendBytes, recvBytes, bytes int64) error {
	if sendBytes == 0 || recvBytes == 0 {
		return nil
	}
	send, recv := uintptr(op.Send), uintptr(op.Recv)
	if send+uintptr(sendBytes) <= recv || recv+uintptr(recvBytes) <= send {
		return nil
	}
	own := uintptr(int64(c.rank) * bytes)
	switch op.Collective {
	case plugin.AllGather:
		if send == recv+own {
			return nil
		}
	case plugin.ReduceScatter:
		if recv == send+own {
			return nil
		}
	case plugin.AllReduce, plugin.Reduce, plugin.Broadcast:
		if send == recv {
			return nil
		}
	case plugin.Gather:
		if send == recv+own {
			return nil
		}
	case plugin.Scatter:
		if recv == send+own {
			return nil
		}
	case plugin.AllGatherV, plugin.GatherV:
		if displ := displOf(op.RecvCounts, op.RecvDispls, c.rank); send == recv+uintptr(displ*op.DType.Bytes()) {
			return nil
		}
	case plugin.ReduceScatterV, plugin.ScatterV:
		if displ := displOf(op.SendCounts, op.SendDispls, c.rank); recv == send+uintptr(displ*op.DType.Bytes()) {
			return nil
		}
	}
	return c.invalid(op, "send memory %p (%d bytes) and receive memory %p (%d bytes) overlap but are not in place", op.Send, sendBytes, op.Recv, recvBytes)
}

func displOf(counts, displs []int64, rank int) int64 {
	if displs != nil {
		return displs[rank]
	}
	at := int64(0)
	for _, n := range counts[:rank] {
		at += n
	}
	return at
}

// invalid is an invalid-argument error that names the operation and the rank.
func (c *Communicator) invalid(op *Operation, format string, args ...any) error {
	return plugin.Errorf(plugin.InvalidArgument, "%s on rank %d: "+format, append([]any{op.Collective, c.rank}, args...)...)
}

func usesRoot(v plugin.Collective) bool { return v.Rooted() || v.PointToPoint() }

// mulBytes is count*size, or false when that overflows.
func mulBytes(count, size int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(count), uint64(size))
	return int64(lo), hi == 0 && lo <= math.MaxInt64
}
