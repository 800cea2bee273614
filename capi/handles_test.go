package main

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

func newTable() *table[int] { return &table[int]{kind: kindWindow, what: "window"} }

func TestHandleOfReleasedObjectIsRefused(t *testing.T) {
	table := newTable()
	first, second := 1, 2
	a, err := table.add(&first)
	require.NoError(t, err)
	require.Same(t, &first, table.get(a))
	object, err := table.remove(a)
	require.NoError(t, err)
	require.Same(t, &first, object)

	// The slot is used again, under another handle.
	b, err := table.add(&second)
	require.NoError(t, err)
	require.NotEqual(t, a, b)
	require.Equal(t, a&(1<<slotBits-1), b&(1<<slotBits-1))
	require.Nil(t, table.get(a))
	_, err = table.remove(a)
	require.ErrorIs(t, err, plugin.InvalidArgument)
	require.Same(t, &second, table.get(b))
	require.Equal(t, 1, table.live())
}

func TestHandleErrorsSayWhatIsWrong(t *testing.T) {
	table := newTable()
	for h, want := range map[handle]string{
		0:                                        "window is NULL",
		handle(kindWindow)<<56 | 1<<slotBits:     "closed or was never made",
		handle(kindWindow)<<56 | 1<<slotBits - 1: "closed or was never made",
		handle(kindComm) << 56:                   "handle of another kind",
		0x7fff12345678:                           "is not a window",
	} {
		_, err := table.find(h)
		require.ErrorIs(t, err, plugin.InvalidArgument)
		require.ErrorContains(t, err, want)
	}
}

func TestGenerationWrapsWithoutZero(t *testing.T) {
	table := newTable()
	object := 0
	h, err := table.add(&object)
	require.NoError(t, err)
	table.slot(0).generation = 1<<32 - 1
	_, err = table.remove(h)
	require.NoError(t, err)
	h, err = table.add(&object)
	require.NoError(t, err)
	require.Equal(t, handle(kindWindow)<<56|1<<slotBits, h)
}

func TestRemoveIfTakesMatchesOnly(t *testing.T) {
	table := newTable()
	objects := make([]int, 3000)
	handles := make([]handle, len(objects))
	for i := range objects {
		objects[i] = i
		var err error
		handles[i], err = table.add(&objects[i])
		require.NoError(t, err)
	}
	table.removeIf(func(n *int) bool { return *n%3 == 0 })
	require.Equal(t, 2000, table.live())
	for i, h := range handles {
		require.Equal(t, i%3 == 0, table.get(h) == nil)
	}
}

func TestHandlesUnderConcurrentUse(t *testing.T) {
	table := newTable()
	var group sync.WaitGroup
	stale := make(chan handle, 1024)
	for g := range 4 {
		group.Go(func() {
			for i := range 2000 {
				object := g*10000 + i
				h, err := table.add(&object)
				if err != nil {
					t.Error(err)
					return
				}
				if table.get(h) != &object {
					t.Error("a live handle does not find its object")
				}
				if _, err := table.remove(h); err != nil {
					t.Error(err)
				}
				select {
				case stale <- h:
				case old := <-stale:
					if table.get(old) != nil {
						t.Error("a stale handle finds an object")
					}
				}
			}
		})
	}
	group.Wait()
	require.Zero(t, table.live())
}

func FuzzHandle(f *testing.F) {
	table := newTable()
	object := 5
	live, err := table.add(&object)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint64(0))
	f.Add(uint64(live))
	f.Add(uint64(live) + 1)
	f.Add(uint64(live) ^ 1<<40)
	f.Add(^uint64(0))
	f.Fuzz(func(t *testing.T, number uint64) {
		got, err := table.find(handle(number))
		if (got != nil) != (handle(number) == live) || (err == nil) != (got != nil) {
			t.Fatalf("find(%#x) = %v, %v", number, got, err)
		}
		if handle(number) != live {
			if _, err := table.remove(handle(number)); err == nil {
				t.Fatalf("remove(%#x) succeeded", number)
			}
		}
	})
}

func BenchmarkHandle(b *testing.B) {
	table := newTable()
	object := 5
	h, err := table.add(&object)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if table.get(h) == nil {
			b.Fatal("lost")
		}
	}
}
