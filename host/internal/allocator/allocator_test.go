package allocator

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host/internal/pool"
	"github.com/shunt-ccl/shunt/plugin"
)

// world is one rank's view of two ranks: the other one brings what theirs makes of this rank's step, and agrees on
// errors with its own, one after the other.
type world struct {
	theirs func(step) []byte
	errors []error
	rank   int // of the allocator
}

func (w *world) AllGather(_ context.Context, _ string, payload []byte) ([][]byte, error) {
	var mine step
	if err := json.Unmarshal(payload, &mine); err != nil {
		return nil, err
	}
	if w.rank == 1 {
		return [][]byte{w.theirs(mine), payload}, nil
	}
	return [][]byte{payload, w.theirs(mine)}, nil
}

func (w *world) Agree(_ context.Context, _ string, err error) error {
	if err == nil && len(w.errors) > 0 {
		err, w.errors = w.errors[0], w.errors[1:]
	}
	return err
}

// newAllocator makes an allocator on a driver that must have nothing left once it is destroyed.
func newAllocator(t *testing.T, set *Set, group *world) *Allocator {
	t.Helper()
	driver := cudatest.New(cudatest.Options{})
	home := Home{
		Label:    "world",
		Turn:     func(string) (func(), error) { return func() {}, nil },
		Failed:   func(string) error { return nil },
		Deadline: func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
		Group:    group,
	}
	if group != nil {
		home.Rank = group.rank
	}
	a, err := set.New(home, driver, 0, Options{Symmetric: group != nil})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, a.Destroy())
		require.Empty(t, set.all)
		require.Empty(t, driver.Leaks())
		driver.Close()
	})
	return a
}

func encoded(t *testing.T, s step) []byte {
	text, err := json.Marshal(s)
	require.NoError(t, err)
	return text
}

// What another rank brings to a step is not trusted, and a step that fails leaves no memory behind.
func TestStepsThatFail(t *testing.T) {
	outOfMemory := plugin.Errorf(plugin.OutOfMemory, "rank 1 has none")
	for name, c := range map[string]struct {
		theirs func(step) []byte
		errors []error
		code   plugin.Code
		text   string
	}{
		"no step":         {func(step) []byte { return nil }, nil, plugin.Protocol, "rank 1 sent a malformed step"},
		"cut off":         {func(s step) []byte { return encoded(t, s)[:5] }, nil, plugin.Protocol, "rank 1 sent a malformed step"},
		"another kind":    {func(s step) []byte { s.What = "trim"; return encoded(t, s) }, nil, plugin.Mismatch, "rank 0 wants to grow"},
		"another size":    {func(s step) []byte { s.Bytes++; return encoded(t, s) }, nil, plugin.Mismatch, "for 1025 bytes"},
		"another number":  {func(s step) []byte { s.Passed = []byte{1}; return encoded(t, s) }, nil, plugin.Mismatch, "with 1 free blocks"},
		"no memory there": {func(s step) []byte { return encoded(t, s) }, []error{outOfMemory, outOfMemory}, plugin.OutOfMemory, "rank 1 has none"},
		"a lost rank":     {func(s step) []byte { return encoded(t, s) }, []error{plugin.Errorf(plugin.PeerDied, "rank 1 died")}, plugin.PeerDied, "rank 1 died"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAllocator(t, &Set{}, &world{theirs: c.theirs, errors: c.errors})
			p, err := a.Alloc(1024, 0)
			require.Zero(t, p)
			require.ErrorContains(t, err, c.text)
			require.Equal(t, c.code, plugin.CodeOf(err))
			require.Zero(t, a.Stats())
		})
	}
}

// Ranks whose numbers of free blocks differ get the error that says so, whichever of them has more.
func TestStepsOfRanksWithDifferentBlocks(t *testing.T) {
	for rank := range 2 {
		for _, theirs := range [][]byte{nil, {1}, {1, 1, 1}} {
			number := [2]int{len(theirs), len(theirs)}
			number[rank] = 2
			t.Run(fmt.Sprintf("rank %d, %d of rank %d", rank, len(theirs), 1-rank), func(t *testing.T) {
				a := newAllocator(t, &Set{}, &world{rank: rank, theirs: func(s step) []byte {
					s.Passed = theirs
					return encoded(t, s)
				}})
				for range 2 { // one free block each
					m, err := a.make(pool.Granularity)
					require.NoError(t, err)
					a.pool.Add(m, nil)
				}
				before := a.Stats()
				_, err := a.meet("grow", 1024, nil)
				require.Equal(t, plugin.Mismatch, plugin.CodeOf(err))
				require.ErrorContains(t, err, fmt.Sprintf("rank 0 wants to grow for 1024 bytes with %d free blocks, "+
					"rank 1 to grow for 1024 bytes with %d free blocks", number[0], number[1]))
				require.Equal(t, before, a.Stats())
				a.ended = true // it has no registrations to end
			})
		}
	}
}

// Memory that some rank still uses is not agreed to be idle.
func TestBlocksAreIdleOnceAllRanksSaySo(t *testing.T) {
	for rank := range 2 {
		for _, theirs := range [][]byte{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
			a := newAllocator(t, &Set{}, &world{rank: rank, theirs: func(s step) []byte {
				s.Passed = theirs
				return encoded(t, s)
			}})
			for range 2 {
				m, err := a.make(pool.Granularity)
				require.NoError(t, err)
				a.pool.Add(m, nil)
			}
			var blocks []cuda.Ptr
			for range 2 {
				p, err := a.pool.Alloc(pool.Granularity, 0)
				require.NoError(t, err)
				blocks = append(blocks, p)
			}
			for _, p := range blocks {
				require.NoError(t, a.Free(p, 0))
			}
			require.NoError(t, a.gpu.Driver.Synchronize(a.gpu.Context))
			idle := int64(0)
			for _, one := range theirs {
				idle += int64(one)
			}
			_, err := a.meet("trim", 0, nil)
			require.NoError(t, err)
			a.ended = true // it has no registrations to end
			require.NoError(t, a.shrink(false))
			require.Equal(t, 2-idle, a.Stats().Segments, "rank %d, idle on rank %d: %v", rank, 1-rank, theirs)
		}
	}
}

// Without its communicator an allocator gives out what it has, and does not grow.
func TestAllocatorOutlivesItsCommunicator(t *testing.T) {
	var set Set
	a := newAllocator(t, &set, nil)
	require.NoError(t, a.grow(1<<20, 1<<20, true))
	set.End()
	p, err := a.Alloc(1<<20, 0)
	require.NoError(t, err)
	require.NotZero(t, p)
	_, err = a.Alloc(1<<30, 0)
	require.ErrorContains(t, err, "communicator world is closed")
	require.Equal(t, plugin.Closed, plugin.CodeOf(err))
	require.Error(t, a.Destroy(), "a block is allocated")
	require.NoError(t, a.Free(p, cuda.Stream(0)))
	require.NoError(t, a.Trim())

	driver := cudatest.New(cudatest.Options{})
	defer driver.Close()
	late, err := set.New(Home{}, driver, 0, Options{})
	require.NoError(t, err)
	require.Nil(t, late)
	require.Empty(t, driver.Leaks())
}

// An allocator that a block keeps goes on; one whose memory the driver does not take back is gone, and says both.
func TestDestroyThatFails(t *testing.T) {
	for _, call := range []string{"Unmap", "Release"} {
		var set Set
		driver := cudatest.New(cudatest.Options{})
		a, err := set.New(Home{Label: "world", Turn: func(string) (func(), error) { return func() {}, nil },
			Failed:   func(string) error { return nil },
			Deadline: func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) }},
			driver, 0, Options{})
		require.NoError(t, err)
		require.NoError(t, a.grow(1<<20, 1<<20, true))
		p, err := a.Alloc(1<<20, 0)
		require.NoError(t, err)
		require.Equal(t, plugin.InvalidArgument, plugin.CodeOf(a.Destroy()))
		require.NotEmpty(t, set.all)
		require.NoError(t, a.Free(p, 0))
		driver.Fail(call, 0, cuda.InvalidValue)
		require.Equal(t, plugin.Device, plugin.CodeOf(a.Destroy()), call)
		require.Empty(t, set.all, call)
		require.Equal(t, plugin.Closed, plugin.CodeOf(a.Destroy()), call)
		driver.Close()
	}
}
