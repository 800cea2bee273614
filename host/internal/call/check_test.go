package call

import (
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// address returns memory that a check may look at the address of, and nothing more.
func address(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

const base = 1 << 40 // away from Go's own memory

func check(t *testing.T, c *Checker, a Arguments) (*Call, error) {
	t.Helper()
	call := &Call{Symmetric: true, OnDevice: true, ComparesLength: true, Arrays: []int64{1}} // of an earlier one
	err := c.Check(&a, make([]int64, 4*c.World), call)
	return call, err
}

// What an operation has no use for is 0 in its slots, whatever its fields hold: plans may give it another meaning.
func TestSlotsOfUnusedFields(t *testing.T) {
	c := &Checker{Rank: 1, World: 3}
	for _, collective := range plugin.Collectives() {
		counts := []int64{4, 4, 4}
		a := Arguments{Collective: collective, DType: plugin.Float32, Count: 4, Root: 2, Scalar: 7,
			Send: address(base), Recv: address(2 * base), SendCounts: counts, RecvCounts: counts}
		call, err := check(t, c, a)
		if collective.OneSided() { // which have a check of their own
			continue
		}
		require.NoError(t, err, collective)
		used := collective.Rooted() || collective.PointToPoint()
		require.Equal(t, used, call.Slots[plugin.SlotRoot] == 2, collective)
		require.Equal(t, used, call.Slots[plugin.SlotRoot] != 0, collective)
		require.Equal(t, used, call.Root == 2, collective)
		require.Equal(t, collective.Reduces(), call.Slots[plugin.SlotScalar] != 0, collective)
	}
}

// Memory in place has NCCL's layout; any other overlap is rejected.
func TestMemoryInPlace(t *testing.T) {
	counts := []int64{3, 5, 7}
	c := &Checker{Rank: 1, World: 3}
	for name, test := range map[string]struct {
		a          Arguments
		send, recv uintptr // where they are in place
	}{
		"all_reduce":     {Arguments{Collective: plugin.AllReduce, Count: 8}, 0, 0},
		"reduce":         {Arguments{Collective: plugin.Reduce, Count: 8, Root: 1}, 0, 0},
		"broadcast":      {Arguments{Collective: plugin.Broadcast, Count: 8, Root: 1}, 0, 0},
		"all_gather":     {Arguments{Collective: plugin.AllGather, Count: 8}, 32, 0},
		"gather":         {Arguments{Collective: plugin.Gather, Count: 8, Root: 1}, 32, 0},
		"reduce_scatter": {Arguments{Collective: plugin.ReduceScatter, Count: 8}, 0, 32},
		"scatter":        {Arguments{Collective: plugin.Scatter, Count: 8, Root: 1}, 0, 32},
		"all_gather_v":   {Arguments{Collective: plugin.AllGatherV, Count: 5, RecvCounts: counts}, 12, 0},
		"gather_v": {Arguments{Collective: plugin.GatherV, Count: 5, Root: 1, RecvCounts: counts,
			RecvDispls: []int64{9, 4, 20}}, 16, 0},
		"reduce_scatter_v": {Arguments{Collective: plugin.ReduceScatterV, SendCounts: counts}, 0, 12},
		"scatter_v": {Arguments{Collective: plugin.ScatterV, Count: 5, Root: 1, SendCounts: counts,
			SendDispls: []int64{9, 4, 20}}, 0, 16},
	} {
		a := test.a
		a.DType = plugin.Float32
		for shift := range uintptr(3) {
			a.Send, a.Recv = address(base+test.send+4*shift), address(base+test.recv)
			call, err := check(t, c, a)
			if shift > 0 {
				require.ErrorIs(t, err, plugin.InvalidArgument, name)
				require.ErrorContains(t, err, "overlap but are not in place", name)
				continue
			}
			require.NoError(t, err, name)
			require.Equal(t, a.Send, call.Send)
			require.NoError(t, c.Readdress(call, address(base+test.send+4096), address(base+test.recv+4096),
				call.Slots[plugin.SlotBytes]))
		}
	}
	// What a rank reduces in place it must not send to another one, too.
	for displs, ok := range map[[3]int64]bool{{0, 3, 8}: true, {8, 3, 11}: true, {2, 3, 9}: false, {0, 3, 7}: false,
		{3, 3, 20}: false} {
		a := Arguments{Collective: plugin.ReduceScatterV, DType: plugin.Float32, SendCounts: counts, SendDispls: displs[:],
			Send: address(base), Recv: address(base + 12)}
		_, err := check(t, c, a)
		require.Equal(t, ok, err == nil, "%v: %v", displs, err)
		require.True(t, ok || strings.Contains(err.Error(), "block of send memory, which overlaps that of rank"), "%v", err)
		a.Recv = address(2 * base)
		_, err = check(t, c, a)
		require.NoError(t, err, "out of place it may")
	}
	a := Arguments{Collective: plugin.ReduceScatterV, DType: plugin.Float32, SendCounts: []int64{0, 5, 0},
		SendDispls: []int64{4, 3, 3}, Send: address(base), Recv: address(base + 12)}
	_, err := check(t, c, a)
	require.NoError(t, err, "empty blocks overlap none")
	for _, collective := range []plugin.Collective{plugin.AllToAll, plugin.AllToAllV} { // never in place
		_, err := check(t, c, Arguments{Collective: collective, DType: plugin.Float32, Count: 8, SendCounts: counts,
			RecvCounts: []int64{3, 5, 7}, Send: address(base), Recv: address(base)})
		require.ErrorContains(t, err, "overlap", "%s", collective)
	}
}

func TestBadArgumentsAreNamed(t *testing.T) {
	c := &Checker{Rank: 1, World: 2}
	other := &Checker{Rank: 1, World: 2}
	sum := Arguments{Collective: plugin.AllReduce, DType: plugin.Float32, Count: 4, Send: address(base),
		Recv: address(base)}
	with := func(change func(a *Arguments)) Arguments {
		a := sum
		change(&a)
		return a
	}
	put := func(w *Window, count, offset int64) Arguments {
		return Arguments{Collective: plugin.Put, DType: plugin.Float32, Count: count, Offset: offset, Window: w,
			Send: address(base)}
	}
	for want, a := range map[string]Arguments{
		"":                          sum,
		"unknown collective 999":    with(func(a *Arguments) { a.Collective = 999 }),
		"unknown dtype 99":          with(func(a *Arguments) { a.DType = 99 }),
		"unknown reduction op 99":   with(func(a *Arguments) { a.Op = 99 }),
		"count -1 is negative":      with(func(a *Arguments) { a.Count = -1 }),
		"of float32 overflows":      with(func(a *Arguments) { a.Count = math.MaxInt64 / 2 }),
		"send memory is null":       with(func(a *Arguments) { a.Send = nil }),
		"is not aligned to the 4":   with(func(a *Arguments) { a.Recv = address(base + 2) }),
		"wraps around":              with(func(a *Arguments) { a.Recv = address(^uintptr(7)) }),
		"root 2 is not a rank":      with(func(a *Arguments) { a.Collective, a.Root = plugin.Reduce, 2 }),
		"peer -1 is not a rank":     with(func(a *Arguments) { a.Collective, a.Root = plugin.Send, -1 }),
		"0 send counts for a world": with(func(a *Arguments) { a.Collective = plugin.AllToAllV }),
		"only all_to_all_v takes":   with(func(a *Arguments) { a.DeviceCounts.SendCapacity = 1 }),
		"need a communicator on CUDA": with(func(a *Arguments) {
			a.Collective, a.DeviceCounts.SendCapacity = plugin.AllToAllV,
				1
		}),
		"no window":                  put(nil, 1, 0),
		"belongs to another":         put(&Window{Owner: other, Bytes: 64}, 1, 0),
		"the window is closed":       put(&Window{Owner: c, Bytes: 64, Closed: true}, 1, 0),
		"exceed the window's 64":     put(&Window{Owner: c, Bytes: 64}, 8, 36),
		"offset -4 is negative":      put(&Window{Owner: c, Bytes: 64}, 1, -4),
		"is not a multiple of the 4": put(&Window{Owner: c, Bytes: 64}, 1, 2),
	} {
		call, err := check(t, c, a)
		if want == "" {
			require.NoError(t, err)
			require.Equal(t, [2]int64{16, 16}, [2]int64{call.Slots[plugin.SlotSendBytes], call.Slots[plugin.SlotRecvBytes]})
			require.False(t, call.Symmetric || call.OnDevice || call.ComparesLength || call.Arrays != nil,
				"left of an earlier call: %+v", call)
			continue
		}
		require.ErrorIs(t, err, plugin.InvalidArgument, want)
		require.ErrorContains(t, err, want)
	}
}

// Good calls allocate nothing.
func TestChecksAllocateNothing(t *testing.T) {
	c, call, arrays := &Checker{Rank: 1, World: 4}, &Call{}, make([]int64, 16)
	counts, displacements := []int64{1, 2, 3, 4}, []int64{9, 7, 4, 0}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		a := Arguments{Collective: plugin.AllToAllV, DType: plugin.Float32, SendCounts: counts, RecvCounts: counts,
			Send: address(base), Recv: address(base + 4096)}
		if err := c.Check(&a, arrays, call); err != nil {
			panic(err)
		}
		call.Identify(4)
		a.RecvDispls = displacements
		if err := c.Check(&a, arrays, call); err != nil {
			panic(err)
		}
	}))
}

// Calls that ranks must make alike have one identity, whatever else differs; a difference in anything that they must
// say alike shows.
func TestIdentity(t *testing.T) {
	identity := func(rank int, change func(*Arguments)) Identity {
		a := Arguments{Collective: plugin.Broadcast, DType: plugin.Float32, Count: 4, Root: 1, Send: address(base),
			Recv: address(base + 64)}
		change(&a)
		call, err := check(t, &Checker{Rank: rank, World: 2}, a)
		require.NoError(t, err)
		call.Identify(2)
		return call.Identity
	}
	same := func(*Arguments) {}
	require.Equal(t, identity(0, same), identity(1, same))
	require.Equal(t, identity(0, same), identity(0, func(a *Arguments) { a.Op, a.Recv = plugin.OpMax, address(base+128) }))
	for name, change := range map[string]func(*Arguments){
		"root":  func(a *Arguments) { a.Root = 0 },
		"count": func(a *Arguments) { a.Count = 3 },
		"dtype": func(a *Arguments) { a.DType = plugin.Int32 },
	} {
		require.NotEqual(t, identity(0, same).On(1), identity(0, change).On(1), name)
	}
	require.NotEqual(t, identity(0, same).On(1), identity(0, same).On(2), "the calls before")
}
