package bootstrap

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// settled waits until f is at most limit.
func settled(f func() int, limit int) int {
	deadline := time.Now().Add(5 * time.Second)
	for f() > limit && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	return f()
}

func TestThousandSessionsLeaveNothing(t *testing.T) {
	dialing(t)
	const n, cycles = 2, 500
	url := fmt.Sprintf("unix://@shunt-leak-%d", os.Getpid())
	cycle := func(count int) {
		noErrors(t, each(n, func(rank int) error {
			for i := range count {
				s, err := Join(t.Context(), Config{Rank: rank, World: n, URL: url, Timeout: 20 * time.Second, Logger: quiet})
				if err != nil {
					return fmt.Errorf("cycle %d: %w", i, err)
				}
				g, err := s.Group("g", []int{1, 0})
				if err != nil {
					return err
				}
				if err := g.Barrier(t.Context(), "b"); err != nil {
					return err
				}
				if err := g.Close(); err != nil {
					return err
				}
				if err := s.Close(); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	cycle(20)
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	began := time.Now()
	cycle(cycles)
	t.Logf("%v a cycle", time.Since(began)/cycles)
	if after := settled(runtime.NumGoroutine, goroutines); after > goroutines {
		t.Errorf("%d goroutines, before %d", after, goroutines)
	}
	if after := settled(func() int { return openFiles(t) }, files); after > files {
		t.Errorf("%d open files, before %d", after, files)
	}
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if len(registry.stores) != 0 || len(registry.hubs) != 0 {
		t.Errorf("%d stores and %d listeners left", len(registry.stores), len(registry.hubs))
	}
}

func TestStoreForgetsGroups(t *testing.T) {
	s := joinAll(t, 3, nil)
	st := lookup(s[0].secret.id())
	noErrors(t, each(3, func(rank int) error {
		for i := range 200 {
			g, err := s[rank].Group(fmt.Sprint("g", i), []int{0, 1, 2})
			if err != nil {
				return err
			}
			if err := g.Barrier(t.Context(), "b"); err != nil {
				return err
			}
			if err := g.Close(); err != nil {
				return err
			}
		}
		return s[rank].All().Barrier(t.Context(), "end")
	}))
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.groups) != 1 || len(st.groups[""]) != 1 || len(st.groups[""][0].pending) != 0 {
		t.Errorf("%d groups left", len(st.groups))
	}
	for rank, m := range st.members {
		if len(m.groups) != 1 {
			t.Errorf("rank %d: %d groups left", rank, len(m.groups))
		}
	}
}
