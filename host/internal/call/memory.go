package call

import (
	"math/bits"
	"unsafe"

	"github.com/shunt-ccl/shunt/plugin"
)

// Readdress gives a checked call other memory, of the same length.
func (c *Checker) Readdress(call *Call, send, recv unsafe.Pointer, bytes int64) error {
	if err := c.checkMemory(call, send, recv, bytes); err != nil {
		return err
	}
	call.Send, call.Recv = send, recv
	return nil
}

// checkMemory checks the addresses of a call whose slots say how long its memory is. bytes is the length of the
// operation's Count.
func (c *Checker) checkMemory(call *Call, send, recv unsafe.Pointer, bytes int64) error {
	if err := c.checkSide(call, "send", send, call.Slots[plugin.SlotSendBytes]); err != nil {
		return err
	}
	if err := c.checkSide(call, "recv", recv, call.Slots[plugin.SlotRecvBytes]); err != nil {
		return err
	}
	return c.checkOverlap(call, send, recv, bytes)
}

func (c *Checker) checkSide(call *Call, side string, p unsafe.Pointer, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	size := call.DType.Bytes()
	if p == nil {
		return c.Invalid(call.Collective, "%s memory is null but %d bytes are needed", side, bytes)
	}
	if uintptr(p)%uintptr(size) != 0 {
		return c.Invalid(call.Collective, "%s memory %p is not aligned to the %d bytes of %s", side, p, size, call.DType)
	}
	if _, carry := bits.Add64(uint64(uintptr(p)), uint64(bytes), 0); carry != 0 {
		return c.Invalid(call.Collective, "%s memory %p of %d bytes wraps around the address space", side, p, bytes)
	}
	return nil
}

// checkOverlap rejects send and receive memory that overlap other than in the in-place forms of NCCL.
func (c *Checker) checkOverlap(call *Call, sendMemory, recvMemory unsafe.Pointer, bytes int64) error {
	sendBytes, recvBytes := call.Slots[plugin.SlotSendBytes], call.Slots[plugin.SlotRecvBytes]
	if sendBytes == 0 || recvBytes == 0 {
		return nil
	}
	send, recv := uintptr(sendMemory), uintptr(recvMemory)
	if send+uintptr(sendBytes) <= recv || recv+uintptr(recvBytes) <= send {
		return nil
	}
	own := uintptr(int64(c.Rank) * bytes)
	inPlace := false
	switch call.Collective {
	case plugin.AllReduce, plugin.Reduce, plugin.Broadcast:
		inPlace = send == recv
	case plugin.AllGather, plugin.Gather:
		inPlace = send == recv+own
	case plugin.ReduceScatter, plugin.Scatter:
		inPlace = recv == send+own
	case plugin.AllGatherV, plugin.GatherV:
		inPlace = send == recv+uintptr(call.Arrays[3*c.World+c.Rank])
	case plugin.ReduceScatterV, plugin.ScatterV:
		inPlace = recv == send+uintptr(call.Arrays[c.World+c.Rank])
	}
	if inPlace && call.Collective == plugin.ReduceScatterV {
		if other := c.sharesBlock(call); other >= 0 {
			return c.Invalid(call.Collective, "receive memory is this rank's block of send memory, which overlaps that of rank %d", other)
		}
	}
	if inPlace {
		return nil
	}
	return c.Invalid(call.Collective, "send memory %p (%d bytes) and receive memory %p (%d bytes) overlap but are not in place", sendMemory, sendBytes, recvMemory, recvBytes)
}

// sharesBlock returns a rank whose block of send memory overlaps this one's, or -1.
func (c *Checker) sharesBlock(call *Call) int {
	counts, displs := call.Arrays[:c.World], call.Arrays[c.World:2*c.World]
	from, to := displs[c.Rank], displs[c.Rank]+counts[c.Rank]
	for r, at := range displs {
		if r != c.Rank && counts[r] > 0 && at < to && from < at+counts[r] {
			return r
		}
	}
	return -1
}
