package executor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// pushPlan copies slot bytes of send to the place at slot offset of the receive
// memory of the rank at slot root, and gives a kernel that address.
func pushPlan(t testing.TB, world int) *plugin.Plan {
	b := plugin.NewBuilder(plugin.Request{Collective: plugin.AllGather, DType: plugin.Uint8, World: world,
		Symmetric: true}, "test")
	b.Track(func() {
		there := b.PeerRecv(b.Slot(plugin.SlotRoot), b.Slot(plugin.SlotOffset))
		b.Copy(there, b.Send(b.Const(0)), b.Slot(plugin.SlotBytes))
		b.Launch("image", "add", b.Const(1), b.Const(1), plugin.Address(there), plugin.Value(b.Const(1), 8))
	})
	p, err := b.Plan()
	require.NoError(t, err)
	return p
}

func pushArguments(send cuda.Ptr, peers []cuda.Ptr, rank, offset, n, recvBytes int64) *Arguments {
	a := &Arguments{Send: pointer(send), PeerRecv: peers}
	a.Slots[plugin.SlotRoot], a.Slots[plugin.SlotOffset], a.Slots[plugin.SlotBytes] = rank, offset, n
	a.Slots[plugin.SlotSendBytes], a.Slots[plugin.SlotRecvBytes] = 64, recvBytes
	return a
}

// Copies and kernels reach each rank's receive memory where the call says that it is.
func TestDevicePlansReachTheReceiveMemoryOfPeers(t *testing.T) {
	g := newGPU(t, 3)
	p, err := g.device.Load(pushPlan(t, 3), 0)
	require.NoError(t, err)
	defer p.Free()
	s := g.stream()
	peers := []cuda.Ptr{g.words + 64, g.words + 128, g.words + 256}
	for rank := range peers {
		g.store(0, uint64(100+rank))
		require.NoError(t, g.device.Run(p, pushArguments(g.words, peers, int64(rank), 8, 8, 16), s))
		g.synchronize(s)
		require.Equal(t, uint64(101+rank), g.value((64<<rank)/8+1), "the copy's word, to which the kernel has added one")
		require.Zero(t, g.value((64<<rank)/8), "what lies before it")
	}
}

func TestDeviceRefusesReceiveMemoryThatItWasNotGiven(t *testing.T) {
	g := newGPU(t, 2)
	p, err := g.device.Load(pushPlan(t, 2), 0)
	require.NoError(t, err)
	defer p.Free()
	peers := []cuda.Ptr{g.words, g.words}
	for name, test := range map[string]struct {
		a    *Arguments
		code plugin.Code
		text string
	}{
		"not symmetric": {pushArguments(g.words, nil, 1, 0, 8, 16), plugin.Protocol, "not symmetric"},
		"past the end": {pushArguments(g.words, peers, 1, 9, 8, 16), plugin.Internal,
			"8 bytes at offset 9 exceed the receive memory of rank 1 of 16 bytes"},
		"before":        {pushArguments(g.words, peers, 1, -1, 8, 16), plugin.Internal, "offset -1"},
		"no such rank":  {pushArguments(g.words, peers, 2, 0, 8, 16), plugin.Internal, "no rank 2"},
		"negative rank": {pushArguments(g.words, peers, -1, 0, 8, 16), plugin.Internal, "no rank -1"},
		"null": {pushArguments(g.words, []cuda.Ptr{g.words, 0}, 1, 0, 8, 16), plugin.InvalidArgument,
			"the receive memory of rank 1 is null"},
		"too few ranks": {pushArguments(g.words, peers[:1], 0, 0, 8, 16), plugin.InvalidArgument,
			"receive memory of 1 ranks, want 2"},
		"too many, third": {pushArguments(g.words, append(peers, 0), 0, 0, 8, 16), plugin.InvalidArgument,
			"receive memory of 3 ranks"},
	} {
		err := g.device.Run(p, test.a, 0)
		require.Equal(t, test.code, plugin.CodeOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, test.text, name)
	}
	g.synchronize(0)
	for i := range 64 {
		require.Zero(t, g.value(i), "nothing was enqueued")
	}
}

// What a capture takes up are the addresses of the call that was captured.
func TestDeviceCapturesTheAddressesOfPeers(t *testing.T) {
	g := newGPU(t, 2)
	p, err := g.device.Load(pushPlan(t, 2), 0)
	require.NoError(t, err)
	s := g.stream()
	peers := []cuda.Ptr{g.words + 64, g.words + 128}
	graph := g.capture(s, func() {
		require.NoError(t, g.device.Run(p, pushArguments(g.words, peers, 1, 0, 8, 8), s))
	})
	exec := g.instantiate(graph)
	peers[1] = g.words + 256
	p.Free()
	for i := range uint64(3) {
		g.store(0, 10*i)
		require.NoError(t, g.LaunchGraph(g.ctx, exec, s))
		g.synchronize(s)
		require.Equal(t, 10*i+1, g.value(16))
	}
	require.Zero(t, g.value(32))
	require.NoError(t, g.DestroyGraphExec(exec))
	require.NoError(t, g.DestroyGraph(graph))
}

func TestDeviceRunWithPeersAllocatesNothing(t *testing.T) {
	g := newGPU(t, 2)
	d := g.newDevice(&blind{Driver: g.Driver}, 2)
	p, err := d.Load(pushPlan(t, 2), 0)
	require.NoError(t, err)
	a := pushArguments(g.words, []cuda.Ptr{g.words, g.words}, 1, 0, 8, 8)
	s := g.stream()
	run := func() { require.NoError(t, d.Run(p, a, s)) }
	run()
	require.Zero(t, testing.AllocsPerRun(100, run))
}

// The CPU's engine has no addresses of peers' receive memory.
func TestEngineRefusesReceiveMemoryOfPeers(t *testing.T) {
	w := newWorld(t, 2, 8192)
	b := plugin.NewBuilder(plugin.Request{Collective: plugin.AllGather, DType: plugin.Uint8, World: 2, Symmetric: true},
		"test")
	b.Track(func() {
		b.Copy(b.PeerRecv(b.Const(1), b.Const(0)), b.Send(b.Const(0)), b.Slot(plugin.SlotBytes))
	})
	p, err := b.Plan()
	require.NoError(t, err)
	_, err = w.engines[0].Load(p, 0)
	require.ErrorIs(t, err, plugin.Unsupported)
	require.Contains(t, err.Error(), "step 0 reaches the receive memory of a peer")
}
