package call

import (
	"math"

	"github.com/shunt-ccl/shunt/plugin"
)

// Check validates op and fills the call. arrays is scratch of 4*world entries that lives as long as the call.
func (c *Checker) Check(op *Arguments, arrays []int64, call *Call) error {
	if !op.Collective.Valid() {
		return plugin.Errorf(plugin.InvalidArgument, "unknown collective %d", uint32(op.Collective))
	}
	if !op.DType.Valid() {
		return c.Invalid(op.Collective, "unknown dtype %d", uint32(op.DType))
	}
	reduces := op.Collective.Reduces()
	if reduces && !op.Op.Valid() {
		return c.Invalid(op.Collective, "unknown reduction op %d", uint32(op.Op))
	}
	if op.Count < 0 {
		return c.Invalid(op.Collective, "count %d is negative", op.Count)
	}
	size := op.DType.Bytes()
	bytes, ok := mulBytes(op.Count, size)
	if !ok {
		return c.Invalid(op.Collective, "count %d of %s overflows", op.Count, op.DType)
	}
	if usesRoot(op.Collective) && (op.Root < 0 || op.Root >= c.World) {
		what := "root"
		if op.Collective.PointToPoint() {
			what = "peer"
		}
		return c.Invalid(op.Collective, "%s %d is not a rank of a world of %d", what, op.Root, c.World)
	}
	call.begin(op, bytes)
	if reduces {
		call.Op = op.Op
		call.Slots[plugin.SlotScalar] = int64(math.Float64bits(op.Scalar))
	}
	sendBytes, recvBytes, err := c.extents(op, call, size, bytes, arrays)
	if err != nil {
		return err
	}
	call.Slots[plugin.SlotSendBytes] = sendBytes
	call.Slots[plugin.SlotRecvBytes] = recvBytes
	return c.checkMemory(call, op.Send, op.Recv, bytes)
}

// begin fills the part of a call that needs no check, field by field: copying a whole call would wait for the stores
// that have just made it.
func (call *Call) begin(op *Arguments, bytes int64) {
	call.Collective, call.DType, call.Op, call.Root = op.Collective, op.DType, 0, 0
	if usesRoot(op.Collective) {
		call.Root = op.Root
	}
	call.Size, call.Count = bytes, op.Count
	call.Send, call.Recv = op.Send, op.Recv
	clear(call.Slots[:])
	call.Slots[plugin.SlotCount] = op.Count
	call.Slots[plugin.SlotBytes] = bytes
	call.Slots[plugin.SlotRoot] = int64(call.Root)
	call.Arrays, call.Symmetric, call.OnDevice, call.ComparesLength = nil, false, false, false
}

func usesRoot(v plugin.Collective) bool { return v.Rooted() || v.PointToPoint() }
