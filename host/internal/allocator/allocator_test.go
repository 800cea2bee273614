package allocator

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
)

// world is rank 0's view of two ranks: the other one brings what theirs makes of rank 0's step, and agrees on errors
// with its own, one after the other.
type world struct {
	theirs func(step) []byte
	errors []error
}

func (w *world) AllGather(_ context.Context, _ string, payload []byte) ([][]byte, error) {
	var mine step
	if err := json.Unmarshal(payload, &mine); err != nil {
		return nil, err
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
			a := newAllocator(t, &Set{}, &world{c.theirs, c.errors})
			p, err := a.Alloc(1024, 0)
			require.Zero(t, p)
			require.ErrorContains(t, err, c.text)
			require.Equal(t, c.code, plugin.CodeOf(err))
			require.Zero(t, a.Stats())
		})
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
