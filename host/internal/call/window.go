package call

import "github.com/shunt-ccl/shunt/plugin"

// windowExtents checks a one-sided operation against its window.
func (c *Checker) windowExtents(op *Arguments, call *Call, bytes int64) (send, recv int64, err error) {
	w := op.Window
	if w == nil {
		return 0, 0, c.Invalid(op.Collective, "no window")
	}
	if w.Owner != c {
		return 0, 0, c.Invalid(op.Collective, "the window belongs to another communicator")
	}
	if w.Closed {
		return 0, 0, c.Invalid(op.Collective, "the window is closed")
	}
	call.Slots[plugin.SlotWindow] = int64(w.ID)
	call.Slots[plugin.SlotOffset] = op.Offset
	if op.Offset < 0 {
		what := "offset"
		if op.Collective == plugin.Wait {
			what = "number of signals"
		}
		return 0, 0, c.Invalid(op.Collective, "%s %d is negative", what, op.Offset)
	}
	if op.Collective == plugin.Put || op.Collective == plugin.Get {
		if op.Offset > w.Bytes || bytes > w.Bytes-op.Offset {
			return 0, 0, c.Invalid(op.Collective, "%d bytes at offset %d exceed the window's %d", bytes, op.Offset, w.Bytes)
		}
		if op.Offset%op.DType.Bytes() != 0 {
			return 0, 0, c.Invalid(op.Collective, "offset %d is not a multiple of the %d bytes of %s", op.Offset,
				op.DType.Bytes(), op.DType)
		}
	}
	switch op.Collective {
	case plugin.Put:
		return bytes, 0, nil
	case plugin.Get:
		return 0, bytes, nil
	}
	return 0, 0, nil
}
