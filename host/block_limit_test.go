package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

const little = 2 * time.Millisecond // a block limit that passes soon

// summed returns an all_reduce of one element in place.
func summed(x []float32) *host.Operation {
	return &host.Operation{Collective: plugin.AllReduce, Send: at(x), Recv: at(x), Count: int64(len(x)),
		DType: plugin.Float32, Op: plugin.OpSum}
}

// A rank waits for one that calls only when the test lets it, with the call new to both
// (it asks the ranks first) and known to both (it runs).
func TestACallGoesOnAsARequestWhenBlockLimitIsOver(t *testing.T) {
	for name, known := range map[string]bool{"first call": false, "later call": true} {
		t.Run(name, func(t *testing.T) {
			come := make(chan struct{})
			world(t, 2, func(c *host.Communicator) error {
				x := []float32{1}
				if known {
					if request, err := c.DoFor(summed(x), time.Hour); request != nil || err != nil {
						return errors.Join(errWrong, err)
					}
					x[0] = 1
				}
				if c.Rank() == 1 {
					<-come
					return errors.Join(c.Do(summed(x)), equal(x, []float32{2}))
				}
				request, err := c.DoFor(summed(x), little)
				if request == nil || err != nil {
					close(come)
					return errors.Join(errWrong, err)
				}
				if done, _ := request.Test(); done {
					err = errWrong
				}
				close(come)
				return errors.Join(err, request.Wait(context.Background()), equal(x, []float32{2}))
			})
		})
	}
}

func TestAGroupGoesOnAsARequestWhenBlockLimitIsOver(t *testing.T) {
	come := make(chan struct{})
	world(t, 2, func(c *host.Communicator) error {
		mine, theirs := ramp(c.Rank(), 100000), make([]float32, 100000)
		exchange := func(blockLimit time.Duration) (*host.Request, error) {
			var g host.Group
			g.Add(host.Operation{Collective: plugin.Send, Send: at(mine), Count: 100000, DType: plugin.Float32,
				Root: 1 - c.Rank()})
			g.Add(host.Operation{Collective: plugin.Recv, Recv: at(theirs), Count: 100000, DType: plugin.Float32,
				Root: 1 - c.Rank()})
			return g.RunFor(c, blockLimit)
		}
		if c.Rank() == 1 {
			<-come
			request, err := exchange(0)
			if request != nil {
				err = errWrong
			}
			return errors.Join(err, equal(theirs, ramp(0, 100000)))
		}
		request, err := exchange(little)
		close(come)
		if request == nil || err != nil {
			return errors.Join(errWrong, err)
		}
		return errors.Join(request.Wait(context.Background()), equal(theirs, ramp(1, 100000)))
	})
}

// What was called behind a paused operation runs behind it, and closing waits.
func TestCallsBehindAPausedOneWaitForIt(t *testing.T) {
	come := make(chan struct{})
	world(t, 2, func(c *host.Communicator) error {
		x, y := []float32{1}, []float32{10}
		if err := c.Barrier(nil); err != nil {
			return err
		}
		if c.Rank() == 1 {
			<-come
			return errors.Join(c.Do(summed(x)), c.Do(summed(y)), equal(y, []float32{20}))
		}
		first, err := c.DoFor(summed(x), little)
		second, err2 := c.DoFor(summed(y), little)
		close(come)
		if first == nil || second == nil {
			return errors.Join(errWrong, err, err2)
		}
		err = second.Wait(context.Background())
		if done, _ := first.Test(); !done {
			err = errWrong
		}
		return errors.Join(err, equal(x, []float32{2}), equal(y, []float32{20}))
	})
}

func TestAnAbortEndsWhatHasGoneOn(t *testing.T) {
	for name, known := range map[string]bool{"first call": false, "later call": true} {
		t.Run(name, func(t *testing.T) {
			aborted := make(chan struct{})
			errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
				x := []float32{1}
				if known {
					if err := c.Do(summed(x)); err != nil {
						return err
					}
				}
				if c.Rank() == 1 {
					<-aborted
					for { // what it needs of rank 0 may be there already
						if err := c.Do(summed(x)); err != nil {
							return err
						}
					}
				}
				request, err := c.DoFor(summed(x), little)
				defer close(aborted)
				c.Abort("interrupted by KeyboardInterrupt")
				if request == nil || err != nil {
					return errors.Join(errWrong, err)
				}
				return request.Wait(context.Background()) // rank 1 has not come
			})
			for rank, err := range errs {
				if plugin.CodeOf(err) != plugin.Aborted || !strings.Contains(err.Error(),
					"rank 0 aborted: interrupted by KeyboardInterrupt") {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
		})
	}
}

// A call that ends in time allocates as little with a block limit as without.
func TestBlockLimitCostsNoMemory(t *testing.T) {
	var allocs atomic.Int64
	world(t, 1, func(c *host.Communicator) error {
		x := []float32{1}
		op := summed(x)
		var failed error
		n := testing.AllocsPerRun(200, func() {
			if request, err := c.DoFor(op, time.Second); request != nil || err != nil {
				failed = errors.Join(errWrong, err)
			}
		})
		allocs.Store(int64(n))
		return failed
	})
	if n := allocs.Load(); n != 0 {
		t.Errorf("%d allocations a call, want 0", n)
	}
}

// A call without an operation panics before it has taken the turn, which the calls behind it need, and Close.
func TestACallOfNoOperationKeepsNobodyWaiting(t *testing.T) {
	world(t, 1, func(c *host.Communicator) error {
		for name, call := range map[string]func(){
			"do":     func() { _ = c.Do(nil) },
			"do_for": func() { _, _ = c.DoFor(nil, time.Second) },
			"start":  func() { _, _ = c.Start(nil) },
		} {
			require.Panics(t, call, name)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			next, err := c.Start(&host.Operation{Collective: plugin.Barrier})
			if err == nil {
				err = next.Wait(ctx)
			}
			if err != nil {
				return fmt.Errorf("behind %s: %w", name, err)
			}
		}
		return nil
	})
}

// What has gone on as a request is compared with the other ranks' calls as any other, where its plan does not do that.
func TestRequestsOfRanksThatDisagreeAreTold(t *testing.T) {
	come := make(chan struct{})
	errs := worldErrors(t, 2, func(_ int, o *host.Options) { o.Transports = []string{"builtin:unmarked"} },
		func(c *host.Communicator) error {
			sum, largest := summed([]float32{1}), summed([]float32{1})
			largest.Op = plugin.OpMax
			if err := errors.Join(c.Do(sum), c.Do(largest), c.Barrier(nil)); err != nil { // both are known, so they run
				return err
			}
			if c.Rank() == 1 {
				<-come
				return c.Do(largest)
			}
			request, err := c.DoFor(sum, little)
			close(come)
			if request == nil || err != nil {
				return errors.Join(errWrong, err)
			}
			return request.Wait(t.Context())
		})
	for rank, err := range errs {
		if plugin.CodeOf(err) != plugin.Mismatch || !strings.Contains(err.Error(), "rank 1 called #4 all_reduce") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
