package diagnosis

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// pagedLedger is a ledger with the control pages of its ranks.
type pagedLedger struct {
	*Ledger
	pages [2]executor.Memory
}

// aLedger returns the ledger of rank 0 of two, with control pages of both.
func aLedger(t *testing.T) pagedLedger {
	e, err := executor.NewEngine(0, 2)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	length := executor.ControlBytes + int(executor.MessageBytes(2))
	var pages [2]executor.Memory
	for rank := range 2 {
		page, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_SHARED)
		require.NoError(t, err)
		t.Cleanup(func() { unix.Munmap(page) })
		pages[rank] = executor.Memory{Base: unsafe.Pointer(&page[0]), Bytes: int64(length)}
		require.NoError(t, e.SetControl(rank, pages[rank]))
	}
	return pagedLedger{&Ledger{Observer: &Observer{World: 2, Label: "world", Engine: e}}, pages}
}

// next numbers and publishes a call.
func (l *Ledger) next(c *call.Call) {
	c.Identify(2)
	l.Next(c, 2)
	l.Publish(c)
	l.Engine.Announce()
	l.Engine.NoteCall()
}

func TestALedgerNumbersAndTellsOfCalls(t *testing.T) {
	l := aLedger(t)
	l.next(&call.Call{Collective: plugin.Barrier})
	l.TakeBack(plugin.Barrier)
	require.Equal(t, "has called nothing yet", l.State(0).String())
	l.next(&call.Call{Collective: plugin.Broadcast, DType: plugin.Int32, Count: 7, Root: 1})
	require.Equal(t, "called #1 broadcast, count 7 of int32, root 1", l.State(0).String())
	require.Equal(t, "broadcast #1", l.Name(plugin.Broadcast))
	require.Equal(t, "send", l.Name(plugin.Send))
	hash := l.Hash
	l.next(&call.Call{Collective: plugin.Barrier})
	require.NotEqual(t, hash, l.Hash)
	l.TakeBack(plugin.Barrier)
	require.Equal(t, hash, l.Hash)
	require.EqualValues(t, 1, l.Collectives)
	require.Equal(t, "called #1 broadcast, count 7 of int32, root 1", l.State(0).String())
	l.TakeBack(plugin.Send)
	require.EqualValues(t, 1, l.Collectives, "a message has no number")
	l.PublishClosed()
	require.True(t, l.State(0).HasClosed())
}

func TestALedgerNotesLengths(t *testing.T) {
	l := aLedger(t)
	message := func(collective plugin.Collective, bytes int64) *call.Call {
		c := &call.Call{Collective: collective, DType: plugin.Uint8, Root: 1}
		c.Slots[plugin.SlotBytes] = bytes
		return c
	}
	l.Begin(message(plugin.Send, 5), false)
	require.EqualValues(t, 1, l.Engine.Sent(executor.Single, 1).Count())
	require.False(t, l.Unchecked.Any())
	l.Begin(message(plugin.Recv, 6), true)
	require.False(t, l.Unchecked.Any(), "its plan compares")
	l.Begin(message(plugin.Recv, 6), false)
	require.True(t, l.Unchecked.Any())
	require.EqualValues(t, 2, l.Engine.Received(executor.Single, 1).Count())
	varying := &call.Call{Collective: plugin.AllToAllV, DType: plugin.Uint8, Arrays: []int64{1, 2, 0, 0, 1, 3, 0, 0}}
	l.Begin(varying, false)
	require.EqualValues(t, 1, l.Engine.Sent(executor.Block, 1).Count())
	require.EqualValues(t, 1, l.Engine.Received(executor.Block, 1).Count())
	messages, _ := l.Messages(varying)
	require.Nil(t, messages)
}

func TestALedgerNotesRejectedCalls(t *testing.T) {
	l := aLedger(t)
	l.next(&call.Call{Collective: plugin.Barrier})
	for collective, number := range map[plugin.Collective]uint64{plugin.AllReduce: 2, plugin.Send: 0} {
		err := errors.New(collective.String() + " on rank 0: count -1 is negative")
		require.Equal(t, err, l.Reject(collective, err))
		noted := l.Engine.PeerRejection(0)
		require.Equal(t, number, noted.Seq)
		require.Equal(t, collective.String()+": count -1 is negative", noted.Text)
	}
	require.EqualError(t, l.Invalid("split", "color %d is negative", -2), "split on rank 0: color -2 is negative")
	require.Equal(t, "split: color -2 is negative", l.Engine.PeerRejection(0).Text)
}
