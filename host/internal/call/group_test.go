package call

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

func message(collective plugin.Collective, peer int, bytes int64, at *byte) Call {
	c := Call{Collective: collective, Root: peer}
	c.Slots[plugin.SlotBytes] = bytes
	if collective == plugin.Send {
		c.Send = unsafe.Pointer(at)
	} else {
		c.Recv = unsafe.Pointer(at)
	}
	return c
}

// Messages of one pair of ranks take a round each, in order; those of different pairs or directions share rounds, and
// the next group finds nothing of this one.
func TestRounds(t *testing.T) {
	memory := make([]byte, 4)
	at := func(i int) int64 { return int64(uintptr(unsafe.Pointer(&memory[i]))) }
	var r Rounds
	for range 2 {
		r.Begin(3)
		for _, c := range []Call{
			message(plugin.Send, 1, 10, &memory[0]), message(plugin.Recv, 1, 20, &memory[1]),
			message(plugin.Send, 1, 30, &memory[2]), message(plugin.Send, 2, 40, &memory[3]),
		} {
			r.Add(&c)
		}
		require.Equal(t, [][]int64{
			{0, 10, 40, 0, at(0), at(3), 0, 20, 0, 0, at(1), 0},
			{0, 30, 0, 0, at(2), 0, 0, 0, 0, 0, 0, 0},
		}, r.All())
		require.Equal(t, []int{1, 2}, r.Partners())
	}
	r.Begin(3)
	require.Empty(t, r.All())
	require.Empty(t, r.Partners())
}

func TestToSelf(t *testing.T) {
	calls := []Call{
		message(plugin.Send, 0, 1, nil), message(plugin.Send, 1, 9, nil), message(plugin.Recv, 0, 1, nil),
		message(plugin.Recv, 0, 2, nil), message(plugin.Send, 0, 2, nil),
	}
	sends, recvs, err := ToSelf(0, calls)
	require.NoError(t, err)
	require.Equal(t, []*Call{&calls[0], &calls[4]}, sends)
	require.Equal(t, []*Call{&calls[2], &calls[3]}, recvs)
	_, _, err = ToSelf(0, calls[:4])
	require.ErrorContains(t, err, "1 sends to itself but 2 receives from itself")
	require.Equal(t, plugin.InvalidArgument, plugin.CodeOf(err))
	calls[4].Slots[plugin.SlotBytes] = 3
	_, _, err = ToSelf(0, calls)
	require.ErrorContains(t, err, "sends 3 bytes to itself but receives 2")
	require.Equal(t, plugin.Mismatch, plugin.CodeOf(err))
}
