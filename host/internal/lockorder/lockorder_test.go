package lockorder

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// reports turns the checks on for a test and collects what they report.
func reports(t *testing.T) *[]string {
	t.Helper()
	var mu sync.Mutex
	list := &[]string{}
	t.Cleanup(Check(func(text string) {
		mu.Lock()
		defer mu.Unlock()
		*list = append(*list, text)
	}))
	return list
}

// Every pair of locks in the right order is silent, and in the reversed order named.
func TestReversedOrderIsReported(t *testing.T) {
	list := reports(t)
	levels := []Level{Growth, Turn, Buffers, Memory}
	for i, first := range levels {
		for j, second := range levels {
			*list = nil
			a, b := Mutex{Level: first}, Mutex{Level: second}
			func() {
				a.Lock()
				defer a.Unlock()
				b.Lock()
				defer b.Unlock()
			}()
			if i < j || first == Turn && second == Turn {
				require.Empty(t, *list, "%v, then %v", first, second)
				continue
			}
			require.Len(t, *list, 1, "%v, then %v", first, second)
			require.Equal(t, "a goroutine that holds "+first.String()+" waits for "+second.String()+
				"; the order is "+order(), (*list)[0])
		}
	}
	require.Zero(t, Held())
}

// What goroutines hold is their own, and ends with it.
func TestGoroutinesAreApart(t *testing.T) {
	list := reports(t)
	memory, growth := Mutex{Level: Memory}, Mutex{Level: Growth}
	memory.Lock()
	var all sync.WaitGroup
	all.Go(func() {
		growth.Lock()
		defer growth.Unlock()
		MustNotHold("cuMemUnmap", Turn, Memory)
	})
	all.Wait()
	memory.Unlock()
	growth.Lock()
	MustNotHold("cuMemUnmap", Turn, Memory)
	growth.Unlock()
	require.Empty(t, *list)
	require.Zero(t, Held())
}

// Memory is freed outside the locks that others need.
func TestFreeingUnderALockIsReported(t *testing.T) {
	list := reports(t)
	memory := Mutex{Level: Memory}
	memory.Lock()
	MustNotHold("cuMemUnmap", Turn, Memory)
	memory.Unlock()
	require.Len(t, *list, 1)
	require.True(t, strings.HasPrefix((*list)[0], "a goroutine that holds an allocator's memory lock calls cuMemUnmap"))
}
