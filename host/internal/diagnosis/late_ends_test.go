package diagnosis

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// lateWorld is two ranks of one host that see each other's control pages; called has a rank call its nth collective,
// and the observer is rank 0's.
func lateWorld(t *testing.T) (o *Observer, called func(rank int, n uint64, what plugin.Collective)) {
	var engines [2]*executor.Engine
	for rank := range engines {
		e, err := executor.NewEngine(rank, 2)
		require.NoError(t, err)
		t.Cleanup(e.Close)
		engines[rank] = e
	}
	for rank := range engines {
		page, err := unix.Mmap(-1, 0, executor.ControlBytes, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_ANONYMOUS|unix.MAP_SHARED)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, unix.Munmap(page)) })
		memory := executor.Memory{Base: unsafe.Pointer(&page[0]), Bytes: executor.ControlBytes}
		for _, e := range engines {
			require.NoError(t, e.SetControl(rank, memory))
		}
	}
	o = &Observer{World: 2, Label: "world", Engine: engines[0],
		Topology: &topology.Topology{Places: make([]topology.Place, 2)}}
	o.SetTimeout(time.Minute)
	return o, func(rank int, n uint64, what plugin.Collective) {
		engines[rank].Record(n, n, uint32(what), 0, 0, 0, 0)
		engines[rank].Announce()
	}
}

// looks looks several times a second for so long, and returns what the last look found.
func looks(l *Late, o *Observer, engine, idle bool, now *time.Time, most time.Duration) (reason *plugin.Error) {
	var flights Flights
	for end := now.Add(most); reason == nil && now.Before(end); *now = now.Add(250 * time.Millisecond) {
		reason = l.Look(o, &flights, engine, func() bool { return idle }, *now)
	}
	return reason
}

// A rank is late only while it calls nothing, what this rank has enqueued waits for it, and nothing else has failed.
func TestWhoIsNotLate(t *testing.T) {
	for name, idle := range map[string]bool{"its work is done": true, "it has failed": false} {
		o, called := lateWorld(t)
		called(0, 1, plugin.AllReduce)
		if !idle {
			o.Failure.SetUp("")
			o.Failure.Set(&plugin.Error{Code: plugin.Aborted, Message: "enough"})
		}
		var l Late
		now := time.Now()
		require.Nil(t, looks(&l, o, true, idle, &now, 3*o.Timeout()), name)
	}
	o, called := lateWorld(t)
	var l Late
	now := time.Now()
	called(0, 9, plugin.AllReduce)
	for n := range uint64(8) { // it makes progress
		called(1, n+1, plugin.AllReduce)
		require.Nil(t, looks(&l, o, true, false, &now, o.Timeout()*2/3), "after %d", n+1)
	}
	called(1, 9, plugin.AllReduce)
	require.Nil(t, looks(&l, o, true, false, &now, 3*o.Timeout()), "it has caught up")
	called(0, 10, plugin.AllReduce)
	require.Nil(t, looks(&l, o, true, false, &now, o.Timeout()*2/3), "it is behind anew")
	require.Nil(t, looks(new(Late), o, false, false, &now, 3*o.Timeout()), "our kernels have a deadline themselves")
}

// How long a rank was behind before it caught up does not count when it is behind again.
func TestBeingBehindBeginsAnew(t *testing.T) {
	o, called := lateWorld(t)
	var l Late
	now := time.Now()
	called(0, 2, plugin.AllReduce)
	called(1, 1, plugin.AllReduce)
	require.Nil(t, looks(&l, o, true, false, &now, o.Timeout()*2/3))
	called(0, 1, plugin.AllReduce) // as if both had called as many
	require.Nil(t, looks(&l, o, true, false, &now, o.Timeout()))
	called(0, 2, plugin.AllReduce)
	require.Nil(t, looks(&l, o, true, false, &now, o.Timeout()*2/3))
	require.NotNil(t, looks(&l, o, true, false, &now, o.Timeout()))
}

// A rank that has closed the communicator with fewer calls is named at once; one that has called as
// many as this one may close it.
func TestWhoClosesIsNotWaitedFor(t *testing.T) {
	o, called := lateWorld(t)
	called(0, 2, plugin.AllReduce)
	called(1, 3, Closed) // which takes a number
	now := time.Now()
	require.Nil(t, looks(new(Late), o, true, false, &now, 3*o.Timeout()))
	called(1, 2, Closed)
	reason := looks(new(Late), o, false, false, &now, time.Second)
	require.NotNil(t, reason)
	require.Equal(t, plugin.Closed, reason.Code)
	require.Equal(t, 1, reason.Rank)
	require.Contains(t, reason.Message, "has closed the communicator while rank 0 waits for it")
}

// A rank of another host has left too, if it closed before a call that this rank has made: else what it sent may be on
// its way. That it called less so far says nothing, as it tells of its calls late.
func TestWhoHasLeftOnAnotherHost(t *testing.T) {
	o, called := lateWorld(t)
	o.Topology.Places[1].HostID = "another"
	called(0, 2, plugin.AllReduce)
	called(1, 1, plugin.AllReduce)
	require.False(t, o.hasLeft(1))
	now := time.Now()
	require.Nil(t, looks(new(Late), o, true, false, &now, 3*o.Timeout()))
	called(1, 3, Closed) // which takes a number
	require.False(t, o.hasLeft(1))
	called(0, 2, plugin.Recv) // after two collectives
	require.False(t, o.hasLeft(1))
	called(0, 3, plugin.AllReduce)
	require.True(t, o.hasLeft(1))
	reason := looks(new(Late), o, false, false, &now, time.Second)
	require.NotNil(t, reason)
	require.Equal(t, plugin.Closed, reason.Code)
}
