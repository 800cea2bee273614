package call

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/shunt-ccl/shunt/plugin"
)

// extents fills the arrays and says how long the caller's memory must be.
func (c *Checker) extents(op *Arguments, call *Call, size, bytes int64, arrays []int64) (send, recv int64, err error) {
	if op.DeviceCounts.given() {
		clear(arrays)
		call.Size, call.Slots[plugin.SlotBytes] = 0, max(bytes, size)
		return c.deviceCounts(op, call, size, arrays)
	}
	world := c.World
	sendCounts, sendDispls := arrays[:world], arrays[world:2*world]
	recvCounts, recvDispls := arrays[2*world:3*world], arrays[3*world:4*world]
	isRoot := op.Root == c.Rank
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
		call.begin(&Arguments{Collective: plugin.Barrier}, 0) // the other fields mean nothing, and ranks are compared
		return 0, 0, nil
	case plugin.Put, plugin.Get, plugin.Signal, plugin.Wait:
		return c.windowExtents(op, call, bytes)
	}

	clear(arrays)
	call.Arrays = arrays
	switch op.Collective {
	case plugin.AllGather:
		recv, err = c.fillEven(op, recvCounts, recvDispls, bytes)
		send = bytes
	case plugin.AllGatherV:
		if recv, call.Size, err = c.fillVarying(op, "receive", recvCounts, recvDispls, op.RecvCounts, op.RecvDispls,
			size); err == nil {
			if send = recvCounts[c.Rank]; send != bytes {
				err = c.Invalid(op.Collective, "count %d differs from receive count %d of this rank", op.Count,
					op.RecvCounts[c.Rank])
			}
		}
	case plugin.ReduceScatter:
		send, err = c.fillEven(op, sendCounts, sendDispls, bytes)
		recv = bytes
	case plugin.ReduceScatterV:
		if send, call.Size, err = c.fillVarying(op, "send", sendCounts, sendDispls, op.SendCounts, op.SendDispls,
			size); err == nil {
			recv = sendCounts[c.Rank]
			call.Count = recv / size
			call.Slots[plugin.SlotCount], call.Slots[plugin.SlotBytes] = call.Count, recv
		}
	case plugin.AllToAll:
		if send, err = c.fillEven(op, sendCounts, sendDispls, bytes); err == nil {
			recv, err = c.fillEven(op, recvCounts, recvDispls, bytes)
		}
	case plugin.AllToAllV:
		call.Size = 0
		call.Slots[plugin.SlotBytes] = 0
		if send, _, err = c.fillVarying(op, "send", sendCounts, sendDispls, op.SendCounts, op.SendDispls, size); err == nil {
			recv, _, err = c.fillVarying(op, "receive", recvCounts, recvDispls, op.RecvCounts, op.RecvDispls, size)
		}
		if err == nil && sendCounts[c.Rank] != recvCounts[c.Rank] {
			err = c.Invalid(op.Collective, "send count %d of this rank to itself differs from receive count %d",
				op.SendCounts[c.Rank], op.RecvCounts[c.Rank])
		}
	case plugin.Gather, plugin.GatherV:
		sendCounts[op.Root] = bytes
		send = bytes
		if isRoot {
			if op.Collective == plugin.Gather {
				recv, err = c.fillEven(op, recvCounts, recvDispls, bytes)
			} else if recv, _, err = c.fillVarying(op, "receive", recvCounts, recvDispls, op.RecvCounts, op.RecvDispls,
				size); err == nil && recvCounts[c.Rank] != bytes {
				err = c.Invalid(op.Collective, "count %d differs from receive count %d of this rank", op.Count, op.RecvCounts[c.Rank])
			}
		}
		if op.Collective == plugin.GatherV {
			call.Size = 0
		}
	case plugin.Scatter, plugin.ScatterV:
		recvCounts[op.Root] = bytes
		recv = bytes
		if isRoot {
			if op.Collective == plugin.Scatter {
				send, err = c.fillEven(op, sendCounts, sendDispls, bytes)
			} else if send, _, err = c.fillVarying(op, "send", sendCounts, sendDispls, op.SendCounts, op.SendDispls,
				size); err == nil && sendCounts[c.Rank] != bytes {
				err = c.Invalid(op.Collective, "count %d differs from send count %d of this rank", op.Count, op.SendCounts[c.Rank])
			}
		}
		if op.Collective == plugin.ScatterV {
			call.Size = 0
		}
	}
	return send, recv, err
}

// fillEven lays out world blocks of equal length and returns their sum.
func (c *Checker) fillEven(op *Arguments, counts, displs []int64, bytes int64) (int64, error) {
	total, ok := mulBytes(bytes, int64(c.World))
	if !ok {
		return 0, c.Invalid(op.Collective, "count %d of %s times world %d overflows", op.Count, op.DType, c.World)
	}
	at := int64(0)
	for r := range counts {
		counts[r], displs[r] = bytes, at
		at += bytes
	}
	return total, nil
}

// fillVarying checks a caller's counts and displacements, lays them out in
// bytes and returns the extent they reach to and the largest count. Blocks that are
// received into do not overlap.
func (c *Checker) fillVarying(op *Arguments, side string, counts, displs, userCounts, userDispls []int64,
	size int64) (extent, largest int64, err error) {
	if len(userCounts) != c.World {
		return 0, 0, c.Invalid(op.Collective, "there are %d %s counts for a world of %d", len(userCounts), side, c.World)
	}
	if userDispls != nil && len(userDispls) != c.World {
		return 0, 0, c.Invalid(op.Collective, "there are %d %s displacements for a world of %d", len(userDispls), side,
			c.World)
	}
	at := int64(0)
	ascend := true
	for r, count := range userCounts {
		if count < 0 {
			return 0, 0, c.Invalid(op.Collective, "%s count %d for rank %d is negative", side, count, r)
		}
		bytes, ok := mulBytes(count, size)
		if !ok {
			return 0, 0, c.Invalid(op.Collective, "%s count %d of %s for rank %d overflows", side, count, op.DType, r)
		}
		displ := at
		if userDispls != nil {
			if userDispls[r] < 0 {
				return 0, 0, c.Invalid(op.Collective, "%s displacement %d for rank %d is negative", side, userDispls[r], r)
			}
			if displ, ok = mulBytes(userDispls[r], size); !ok {
				return 0, 0, c.Invalid(op.Collective, "%s displacement %d of %s for rank %d overflows", side, userDispls[r],
					op.DType, r)
			}
		}
		if displ > math.MaxInt64-bytes {
			return 0, 0, c.Invalid(op.Collective, "%s count and displacement for rank %d overflow", side, r)
		}
		counts[r], displs[r] = bytes, displ
		at = displ + bytes
		if bytes > 0 {
			ascend = ascend && displ >= extent
			extent = max(extent, at)
		}
		largest = max(largest, bytes)
	}
	if side == "receive" && !ascend {
		if a, b, overlap := overlapping(counts, displs); overlap {
			return 0, 0, c.Invalid(op.Collective, "receive blocks of ranks %d and %d overlap", a, b)
		}
	}
	return extent, largest, nil
}

// overlapping finds two blocks that overlap.
func overlapping(counts, displs []int64) (a, b int, found bool) {
	var room [64]int // on the stack
	order := room[:0]
	for r := range counts {
		order = append(order, r)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(displs[a], displs[b]) })
	last := -1 // of those before that are not empty
	for _, r := range order {
		if counts[r] == 0 {
			continue
		}
		if last >= 0 && displs[r] < displs[last]+counts[last] {
			return min(last, r), max(last, r), true
		}
		last = r
	}
	return 0, 0, false
}

// mulBytes returns count*size, or false when that overflows.
func mulBytes(count, size int64) (int64, bool) {
	hi, lo := bits.Mul64(uint64(count), uint64(size))
	return int64(lo), hi == 0 && lo <= math.MaxInt64
}
