package host_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/nccl"
	"github.com/shunt-ccl/shunt/transports/nccl/nccltest"
)

// overNCCL is the transport on the machine of the test.
var overNCCL = nccl.Transport{Drivers: onMachine.Drivers}

func init() { host.Register(overNCCL) }

// withNCCL makes nccltest's library the one that is found.
func withNCCL(t *testing.T) {
	t.Helper()
	path, err := nccltest.Build(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, nccltest.Install(path))
	t.Setenv(nccl.Variable, path)
}

// both returns what gives a rank's options both transports, named by the user, and its choice of algorithms.
func both(algo string) func(int, *host.Options) {
	return func(_ int, o *host.Options) {
		o.Transports, o.Algo = []string{"builtin:cudaipc", "builtin:nccl"}, algo
	}
}

// A communicator of NCCL takes a second and hundreds of MB: it is made by the first call that needs it, once.
func TestNcclIsMadeByTheFirstCallThatNeedsIt(t *testing.T) {
	withNCCL(t)
	const world = 3
	before := nccltest.Made()
	step := make(chan struct{})
	made := func(r *rank) int { // between calls of all ranks
		_ = r.meet()
		return nccltest.Made() - before
	}
	errs := deviceErrors(t, gpus(t, world), both("all_reduce:64K-=nccl;broadcast:1M-=nccl;*=cudaipc"), func(r *rank) error {
		defer func() {
			if r.Rank() == 0 {
				close(step)
			}
		}()
		for _, c := range []struct{ count, want int }{{2, 0}, {8192, 0}, {16384, world}, {100_000, world}, {2, world}} {
			if err := deviceSum(r, c.count); err != nil {
				return fmt.Errorf("%d elements: %w", c.count, err)
			}
			if got := made(r); got != c.want {
				return fmt.Errorf("after %d elements %d communicators of NCCL, want %d", c.count, got, c.want)
			}
		}
		return nil
	})
	require.NoError(t, errors.Join(errs...))
	<-step
}

// NCCL's kernels occupy as many multiprocessors as the smallest budget of the ranks allows, and any number without one.
func TestNcclHasTheBudgetOfMultiprocessors(t *testing.T) {
	withNCCL(t)
	for _, test := range []struct {
		budgets [2]int
		want    int
	}{{[2]int{0, 0}, math.MinInt32}, {[2]int{0, 24}, 24}, {[2]int{24, 8}, 8}} {
		nccltest.Budgets()
		require.NoError(t, errors.Join(deviceErrors(t, gpus(t, 2), func(rank int, o *host.Options) {
			both("*=nccl,*")(rank, o)
			o.MaxSMs = test.budgets[rank]
		}, func(r *rank) error { return errors.Join(deviceSum(r, 100), r.meet()) })...))
		require.Equal(t, slices.Repeat([]int{test.want}, 4), nccltest.Budgets(), "of two parents and their children")
	}
}

// Where NCCL's environment has no communicator block, a call of it returns before its operation is enqueued, and the
// host waits for that.
func TestNcclThatDoesNotBlock(t *testing.T) {
	withNCCL(t)
	t.Setenv("NCCL_COMM_BLOCKING", "0")
	require.NoError(t, errors.Join(deviceErrors(t, gpus(t, 2), both("*=nccl,*"), func(r *rank) error {
		for count := range 5 {
			if err := deviceSum(r, 100*count); err != nil {
				return err
			}
		}
		return r.meet()
	})...))
}

// The first call of a size that NCCL serves may be captured before, or be of another length on one rank: ranks that
// disagree get an error there as in any first call.
func TestRanksThatDisagreeInTheFirstCallOverNccl(t *testing.T) {
	withNCCL(t)
	errs := deviceErrors(t, gpus(t, 2), both("all_reduce:64K-=nccl;*=cudaipc"), func(r *rank) error {
		if err := deviceSum(r, 100); err != nil {
			return err
		}
		return deviceSum(r, 20_000+r.Rank())
	})
	for _, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch)
		assert.Contains(t, err.Error(), "rank 1 called #2 all_reduce, count 20001 of float32, op sum")
	}
}

// What NCCL says of a failure is part of the error, on all ranks.
func TestWordsOfNccl(t *testing.T) {
	withNCCL(t)
	t.Cleanup(func() { nccltest.Break(-1, 0, "") })
	errs := deviceErrors(t, gpus(t, 2), both("*=nccl,*"), func(r *rank) error {
		if err := deviceSum(r, 100); err != nil {
			return err
		}
		if r.Rank() == 1 {
			nccltest.Break(1, 6, "link 3 is down")
		}
		deadline := time.Now().Add(20 * time.Second)
		for time.Now().Before(deadline) {
			if err := deviceSum(r, 100); err != nil {
				return err
			}
		}
		return nil
	})
	for rank, err := range errs {
		require.Error(t, err, "rank %d", rank)
		assert.Contains(t, err.Error(), "link 3 is down")
	}
}

// A failure between calls is found without a call, on all ranks.
func TestNcclIsWatchedBetweenCalls(t *testing.T) {
	withNCCL(t)
	t.Cleanup(func() { nccltest.Break(-1, 0, "") })
	require.NoError(t, errors.Join(deviceErrors(t, gpus(t, 2), both("*=nccl,*"), func(r *rank) error {
		if err := errors.Join(deviceSum(r, 100), r.meet()); err != nil {
			return err
		}
		if r.Rank() == 0 {
			nccltest.Break(1, 6, "link 3 is down")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for r.Err() == nil && ctx.Err() == nil {
			runtime.Gosched()
		}
		if err := r.Err(); err == nil || !strings.Contains(err.Error(), "transport nccl on rank 1") ||
			!strings.Contains(err.Error(), "link 3 is down") {
			return fmt.Errorf("found %w", err)
		}
		return nil
	})...))
}

// NCCL waits for ever for a rank that does not call. The host does not.
func TestRankThatStaysAwayFromNccl(t *testing.T) {
	withNCCL(t)
	adjust := func(rank int, o *host.Options) {
		both("*=nccl,*")(rank, o)
		o.Timeout = 5 * time.Second
	}
	away := make(chan struct{})
	errs := deviceErrors(t, gpus(t, 3), adjust, func(r *rank) error {
		if err := deviceSum(r, 100); err != nil {
			return err
		}
		if r.Rank() == 1 {
			<-away
			return errors.Join(eventually("the timeout", func() bool { return r.Err() != nil }), r.Err())
		}
		if r.Rank() == 0 {
			defer close(away)
		}
		return deviceSum(r, 100)
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Timeout, "rank %d", rank)
		assert.Contains(t, err.Error(), "got no response from peer rank 1")
	}
	assert.Contains(t, errs[0].Error()+errs[2].Error(),
		"rank 1 has not called all_reduce #2, in which rank ")
	assert.Contains(t, errs[0].Error()+errs[2].Error(), "runs nccl/tuned, a native function (step 0 of track 0)")
}

// NCCL does not even return from a call that connects to a rank which does not come. The host ends that, too.
func TestRankThatStaysAwayWhileNcclConnects(t *testing.T) {
	for name, test := range map[string]struct {
		away func(*rank) error
		code plugin.Code
		text string
	}{
		"alive": {func(r *rank) error {
			for r.Err() == nil && t.Context().Err() == nil {
				time.Sleep(time.Millisecond)
			}
			return nil
		}, plugin.Timeout, "got no response from peer rank 1"},
		"closed": {func(r *rank) error { return r.Close() }, plugin.Closed, "has closed the communicator while rank 0"},
	} {
		t.Run(name, func(t *testing.T) {
			withNCCL(t)
			adjust := func(rank int, o *host.Options) {
				both("*=nccl,*")(rank, o)
				o.Timeout = 5 * time.Second
			}
			errs := deviceErrors(t, gpus(t, 2), adjust, func(r *rank) error {
				if err := errors.Join(deviceSum(r, 100), r.meet()); err != nil {
					return err
				}
				if r.Rank() == 1 {
					return test.away(r)
				}
				begun, release := nccltest.HoldOperations()
				defer release()
				defer time.AfterFunc(time.Minute, release).Stop() // nothing else ends a call that the host has forgotten
				err := deviceSum(r, 100)
				select {
				case <-begun:
					return err
				default:
					return fmt.Errorf("NCCL was not called: %w", err)
				}
			})
			require.NoError(t, errs[1])
			require.ErrorIs(t, errs[0], test.code)
			assert.Contains(t, errs[0].Error(), test.text)
		})
	}
}

// Abort ends what waits inside NCCL.
func TestAbortEndsNccl(t *testing.T) {
	withNCCL(t)
	errs := deviceErrors(t, gpus(t, 2), both("*=nccl,*"), func(r *rank) error {
		if err := deviceSum(r, 100); err != nil {
			return err
		}
		if r.Rank() == 1 {
			r.Abort("enough")
			return nil
		}
		return deviceSum(r, 100) // alone
	})
	require.ErrorIs(t, errs[0], plugin.Aborted)
	assert.Contains(t, errs[0].Error(), "rank 1 aborted: enough")
}
