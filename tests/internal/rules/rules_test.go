package rules

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	suite "github.com/shunt-ccl/shunt/tests/conformance"
	"github.com/shunt-ccl/shunt/tests/internal/faults"
)

// scenarios runs the scenarios of the conformance suite that match, on worlds
// of two and three, and fails with the first case that fails.
func scenarios(t *testing.T, filter string) {
	t.Helper()
	suite.Test(t, suite.Config{
		Transport: "builtin:shm", Worlds: []int{2, 3}, Short: true, Filter: regexp.MustCompile(filter),
		Timeout: 6 * time.Second, MaxFailures: 1,
	})
}

// Empty operations stand among full ones. A rank that leaves out the signal or
// the wait of an empty one is an epoch off from then on: the next operation
// reads what was not written yet, or waits for what never comes.
func TestRule01AlwaysSignalAlwaysWait(t *testing.T) {
	scenarios(t, `^(zero_mix|changing_splits|send_recv_pairs|late_rank)/`)
}

// Operations follow each other on the same counters, by different algorithms
// and communicators. A counter that is put back makes a wait succeed before the
// data is there.
func TestRule02CountersOnlyGrow(t *testing.T) {
	scenarios(t, `^(mixed_sequence|barrier_order|changing_roots)/`)
}

// A rank is late between its data and the signal, if the signal comes first: then its
// peers read what was there before.
func TestRule03DataBeforeFlag(t *testing.T) { scenarios(t, `^late_rank/`) }

// A root that runs ahead of slow readers must be held up before it overwrites
// a slot that is still read.
func TestRule13ScratchIsReusedUnderBackPressure(t *testing.T) {
	scenarios(t, `^(changing_roots|send_recv_order|mixed_sequence|run_ahead|late_large)/`)
}

// sameForAll fails unless all ranks have the same code and one message says
// where the failure began.
func sameForAll(t *testing.T, errs []error, code plugin.Code, origin int) {
	t.Helper()
	for rank, err := range errs {
		if plugin.CodeOf(err) != code {
			t.Errorf("rank %d: %s: %v, want %s", rank, plugin.CodeOf(err), err, code)
			continue
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("rank %d", origin)) ||
			!strings.Contains(err.Error(), errBroken.Error()) {
			t.Errorf("rank %d does not name rank %d and the cause: %v", rank, origin, err)
		}
	}
}

// What fails on one rank alone, at any step that all take together, is the error of all ranks, and no rank continues or
// waits for the one that cannot.
func TestRule10LocalFailureIsEverybodys(t *testing.T) {
	const world, timeout = 3, 5 * time.Second
	defer breakable.reset()
	for origin := range world {
		t.Run(fmt.Sprintf("open/%d", origin), func(t *testing.T) {
			breakable.reset()
			breakable.open.Store(failAt(origin, 0))
			start := time.Now()
			errs := ranks(t, world, timeout, func(c *host.Communicator) error { return c.Close() })
			sameForAll(t, errs, plugin.System, origin)
			inTime(t, start, timeout)
		})
		t.Run(fmt.Sprintf("prepare/%d", origin), func(t *testing.T) {
			breakable.reset()
			start := time.Now()
			var once sync.Once
			errs := ranks(t, world, timeout, func(c *host.Communicator) error {
				once.Do(func() { breakable.prepare.Store(failAt(origin, 0)) })
				if err := c.Barrier(nil); err == nil { // one more chance, if it was prepared before the switch
					return errors.Join(sum(c), c.Close())
				} else {
					return errors.Join(err, c.Close())
				}
			})
			sameForAll(t, errs, plugin.System, origin)
			inTime(t, start, timeout)
		})
		t.Run(fmt.Sprintf("window/%d", origin), func(t *testing.T) {
			breakable.reset()
			breakable.allocate.Store(failAt(origin, 0))
			start := time.Now()
			errs := ranks(t, world, timeout, func(c *host.Communicator) error {
				_, err := c.NewWindow(t.Context(), 4096)
				if after := sum(c); after != nil {
					err = errors.Join(err, fmt.Errorf("the communicator does not work afterwards: %w", after))
				}
				return errors.Join(err, c.Close())
			})
			sameForAll(t, errs, plugin.System, origin)
			inTime(t, start, timeout)
		})
	}
}

// inTime fails when ranks waited for a deadline instead of agreeing.
func inTime(t *testing.T, start time.Time, timeout time.Duration) {
	t.Helper()
	if took := time.Since(start); took > timeout/2 {
		t.Errorf("took %v: somebody waited for a deadline", took)
	}
}

// A rank waits in every collective for one that never calls it, until a rank aborts. The wait must end at once.
func TestRule12EveryWaitCanBeAborted(t *testing.T) {
	breakable.reset()
	for _, collective := range plugin.Collectives() {
		if collective.OneSided() { // one-sided operations do not wait, but for wait itself
			continue
		}
		t.Run(collective.String(), func(t *testing.T) {
			memory := make([]int64, 64)
			entered := make(chan struct{}, 1)
			start := time.Now()
			errs := ranks(t, 2, 30*time.Second, func(c *host.Communicator) error {
				err := sum(c) // both are there
				if c.Rank() == 1 {
					<-entered
					c.Abort("the test says so")
					return errors.Join(err, c.Close())
				}
				op := host.Operation{
					Collective: collective, DType: plugin.Int64, Count: 8, Root: 1,
					Send: unsafe.Pointer(&memory[0]), Recv: unsafe.Pointer(&memory[32]),
					SendCounts: []int64{8, 8}, RecvCounts: []int64{8, 8},
				}
				if collective == plugin.Broadcast || collective.PointToPoint() || collective == plugin.Scatter ||
					collective == plugin.ScatterV {
					op.Root = 1 // receives from the one that stays away
				} else if collective.Rooted() {
					op.Root = 0
				}
				request, err2 := c.Start(&op)
				entered <- struct{}{}
				if err2 != nil {
					return errors.Join(err, err2, c.Close())
				}
				err2 = request.Wait(t.Context())
				if err2 == nil && collective == plugin.Send {
					err2 = plugin.Errorf(plugin.Aborted, "buffered") // a send may end before its receive
				}
				if plugin.CodeOf(err2) != plugin.Aborted {
					err = errors.Join(err, fmt.Errorf("%s: %s: %w", collective, plugin.CodeOf(err2), err2))
				}
				return errors.Join(err, c.Close())
			})
			for rank, err := range errs {
				if err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// Closing reports what went wrong, once, and releases everything all the same; it never panics, whatever state the
// communicator is in.
func TestRule14TeardownNeverFailsUpward(t *testing.T) {
	defer breakable.reset()
	t.Run("endpoint fails to close", func(t *testing.T) {
		breakable.reset()
		breakable.close.Store(failAt(1, 0))
		errs := ranks(t, 3, 5*time.Second, func(c *host.Communicator) error {
			first := errors.Join(sum(c), c.Close())
			if second := c.Close(); !errors.Is(second, errBroken) != !errors.Is(first, errBroken) {
				return fmt.Errorf("closed with %v, then with %v", first, second)
			}
			return first
		})
		for rank, err := range errs {
			if rank == 1 && !errors.Is(err, errBroken) || rank != 1 && err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		nothingOpen(t)
	})
	t.Run("aborted, twice, from many goroutines", func(t *testing.T) {
		breakable.reset()
		errs := ranks(t, 2, 5*time.Second, func(c *host.Communicator) error {
			err := sum(c)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() { c.Abort("teardown") })
				all.Go(func() { _ = c.Close() })
			}
			all.Wait()
			if code := plugin.CodeOf(sum(c)); code != plugin.Closed {
				err = errors.Join(err, fmt.Errorf("a call after close gives %s", code))
			}
			return errors.Join(err, c.Close())
		})
		for rank, err := range errs {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		nothingOpen(t)
	})
	t.Run("with a window and a sub-group open", func(t *testing.T) {
		breakable.reset()
		errs := ranks(t, 2, 5*time.Second, func(c *host.Communicator) error {
			w, err := c.NewWindow(t.Context(), 100)
			if err != nil {
				return errors.Join(err, c.Close())
			}
			sub, err := c.Split(t.Context(), 0, 0)
			if err != nil {
				return errors.Join(err, c.Close())
			}
			return errors.Join(c.Close(), w.Close(), sum(sub), sub.Close())
		})
		for rank, err := range errs {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		nothingOpen(t)
	})
}

func nothingOpen(t *testing.T) {
	t.Helper()
	if n := breakable.endpoints.Load(); n != 0 {
		t.Errorf("%d endpoints are still open", n)
	}
}

// A job that fails half-way, at whatever step, leaves no descriptor, mapping,
// endpoint or goroutine behind.
func TestRule15CleanupOnEveryPath(t *testing.T) {
	defer breakable.reset()
	breakable.reset()
	warm := func() {
		for _, err := range ranks(t, 2, 5*time.Second, func(c *host.Communicator) error {
			return errors.Join(sum(c),
				c.Close())
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	warm()
	before, err := faults.Measure()
	if err != nil {
		t.Fatal(err)
	}
	goroutines := runtime.NumGoroutine()
	paths := []struct {
		name string
		arm  func(rank, call int)
	}{
		{"open", func(rank, call int) { breakable.open.Store(failAt(rank, call)) }},
		{"prepare", func(rank, call int) { breakable.prepare.Store(failAt(rank, call)) }},
		{"window", func(rank, call int) { breakable.allocate.Store(failAt(rank, call)) }},
	}
	for _, path := range paths {
		for rank := range 2 {
			for call := range 4 {
				breakable.reset()
				path.arm(rank, call)
				failed := false
				for _, err := range ranks(t, 2, 5*time.Second, useEverything) {
					failed = failed || err != nil
				}
				if call == 0 && !failed {
					t.Errorf("%s, rank %d: nothing failed", path.name, rank)
				}
				nothingOpen(t)
			}
		}
	}
	breakable.reset()
	warm()
	after, err := faults.Measure()
	if err != nil {
		t.Fatal(err)
	}
	if more := after.Since(before); len(more) > 0 {
		t.Errorf("left behind: %v", more)
	}
	deadline := time.Now().Add(2 * time.Second)
	for runtime.NumGoroutine() > goroutines && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, then %d", goroutines, n)
	}
}

// useEverything makes what a communicator can make, and closes only the
// communicators that it got.
func useEverything(c *host.Communicator) (err error) {
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := sum(c); err != nil {
		return err
	}
	if _, err := c.NewWindow(context.Background(), 4096); err != nil {
		return err
	}
	sub, err := c.Split(context.Background(), 0, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sub.Close()) }()
	if err := sum(sub); err != nil {
		return err
	}
	_, err = sub.NewWindow(context.Background(), 100)
	return err
}
