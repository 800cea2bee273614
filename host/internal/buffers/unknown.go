package buffers

import (
	"unsafe"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// Inspect rejects a call of a rank with memory that the GPU does not know: a kernel that touched it would break the
// context for good.
func (g GPU) Inspect(rank int, c *call.Call) error {
	unknown := func(at cuda.Ptr) (bool, error) {
		p, err := g.Driver.Pointer(g.Context, at)
		return p.Kind == cuda.PointerUnknown, err
	}
	for _, side := range []struct {
		name  string
		at    unsafe.Pointer
		bytes int64
	}{{"send", c.Send, c.Slots[plugin.SlotSendBytes]}, {"recv", c.Recv, c.Slots[plugin.SlotRecvBytes]}} {
		if side.bytes == 0 {
			continue
		}
		if is, err := unknown(cuda.Ptr(uintptr(side.at))); err != nil {
			return err
		} else if is {
			return plugin.Errorf(plugin.InvalidArgument, "%s on rank %d: %s memory %p is not the GPU's", c.Collective, rank,
				side.name, side.at)
		}
	}
	if !c.OnDevice {
		return nil
	}
	for i, name := range []string{"send counts", "send displacements", "receive counts", "receive displacements"} {
		at := c.Arrays[i*len(c.Arrays)/4]
		if at == 0 {
			continue
		}
		if is, err := unknown(cuda.Ptr(at)); err != nil {
			return err
		} else if is {
			return plugin.Errorf(plugin.InvalidArgument, "%s on rank %d: %s %#x are not in the GPU's memory", c.Collective, rank,
				name, at)
		}
	}
	return nil
}
