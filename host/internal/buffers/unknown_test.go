package buffers

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// Each side of a call, and each of its arrays on the device, must be memory that the GPU knows.
func TestMemoryThatTheGPUDoesNotKnowIsRejected(t *testing.T) {
	driver := cudatest.New(cudatest.Options{})
	context, err := driver.Retain(0)
	require.NoError(t, err)
	gpu := GPU{Driver: driver, Context: context}
	known, err := driver.Alloc(context, 64)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, driver.Free(context, known)) })
	there := *(*unsafe.Pointer)(unsafe.Pointer(&known))
	strange := make([]int64, 2)
	at := int64(uintptr(unsafe.Pointer(&strange[0])))
	good := func() *call.Call {
		c := &call.Call{Collective: plugin.AllToAllV, Send: there, Recv: there, OnDevice: true, Arrays: make([]int64, 8)}
		c.Slots[plugin.SlotSendBytes], c.Slots[plugin.SlotRecvBytes] = 8, 8
		c.Arrays[0], c.Arrays[4] = int64(known), int64(known) // null displacements mean packed
		return c
	}
	require.NoError(t, gpu.Inspect(1, good()))
	empty := good()
	empty.Send, empty.Slots[plugin.SlotSendBytes] = nil, 0
	require.NoError(t, gpu.Inspect(1, empty))
	for want, spoil := range map[string]func(*call.Call){
		"send memory %#x is not the GPU's":                      func(c *call.Call) { c.Send = unsafe.Pointer(&strange[0]) },
		"recv memory %#x is not the GPU's":                      func(c *call.Call) { c.Recv = unsafe.Pointer(&strange[0]) },
		"send counts %#x are not in the GPU's memory":           func(c *call.Call) { c.Arrays[0] = at },
		"send displacements %#x are not in the GPU's memory":    func(c *call.Call) { c.Arrays[2] = at },
		"receive counts %#x are not in the GPU's memory":        func(c *call.Call) { c.Arrays[4] = at },
		"receive displacements %#x are not in the GPU's memory": func(c *call.Call) { c.Arrays[6] = at },
	} {
		c := good()
		spoil(c)
		err := gpu.Inspect(1, c)
		require.ErrorIs(t, err, plugin.InvalidArgument)
		require.EqualError(t, err, fmt.Sprintf("all_to_all_v on rank 1: "+want, at))
	}
}
