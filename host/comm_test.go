package host_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestAllReduceAddsEveryRank(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		for _, count := range []int{0, 1, 7, 1000, 300_000} {
			t.Run(fmt.Sprintf("world %d count %d", n, count), func(t *testing.T) {
				want := make([]float32, count)
				for r := range n {
					for i, v := range ramp(r, count) {
						want[i] += v
					}
				}
				world(t, n, func(c *host.Communicator) error {
					send, recv := ramp(c.Rank(), count), make([]float32, count)
					for range 3 {
						if err := c.AllReduce(at(send), at(recv), int64(count), plugin.Float32, plugin.OpSum, nil); err != nil {
							return err
						}
						if err := equal(recv, want); err != nil {
							return err
						}
					}
					return c.AllReduce(at(send), at(send), int64(count), plugin.Float32, plugin.OpSum, nil)
				})
			})
		}
	}
}

func TestGroupExchangesWithEveryRankAtOnce(t *testing.T) {
	const n, count = 3, 40_000
	world(t, n, func(c *host.Communicator) error {
		var g host.Group
		received := make([][]float32, n)
		for peer := range n {
			received[peer] = make([]float32, count)
			g.Add(host.Operation{Collective: plugin.Recv, Recv: at(received[peer]), Count: count, DType: plugin.Float32,
				Root: peer})
			mine := ramp(c.Rank(), count)
			g.Add(host.Operation{Collective: plugin.Send, Send: at(mine), Count: count, DType: plugin.Float32, Root: peer})
		}
		if err := g.Run(c); err != nil {
			return err
		}
		for peer := range n {
			if err := equal(received[peer], ramp(peer, count)); err != nil {
				return fmt.Errorf("from %d: %w", peer, err)
			}
		}
		return nil
	})
}

func TestStartRunsInOrderAndWaits(t *testing.T) {
	world(t, 2, func(c *host.Communicator) error {
		x := []int64{int64(c.Rank() + 1)}
		var requests []*host.Request
		for range 10 {
			r, err := c.Start(&host.Operation{Collective: plugin.AllReduce, Send: at(x), Recv: at(x), Count: 1,
				DType: plugin.Int64, Op: plugin.OpSum})
			if err != nil {
				return err
			}
			requests = append(requests, r)
		}
		for _, r := range requests {
			if err := r.Wait(context.Background()); err != nil {
				return err
			}
			if done, err := r.Test(); !done || err != nil {
				return fmt.Errorf("test after wait: %v, %w", done, err)
			}
		}
		return equal(x, []int64{3 << 9})
	})
}

func TestSplitMakesWorkingSubgroups(t *testing.T) {
	world(t, 4, func(c *host.Communicator) error {
		color := c.Rank() % 2
		if c.Rank() == 3 {
			color = host.NoColor
		}
		sub, err := c.Split(context.Background(), color, -c.Rank())
		if err != nil || sub == nil {
			if (sub == nil) != (c.Rank() == 3) {
				return errors.Join(err, errors.New("membership is wrong"))
			}
			return err
		}
		x := []int32{int32(c.Rank())}
		err = sub.AllReduce(at(x), at(x), 1, plugin.Int32, plugin.OpSum, nil)
		want := []int32{2}
		if color == 1 {
			want = []int32{1}
		} else if sub.Rank() != map[int]int{0: 1, 2: 0}[c.Rank()] {
			err = errors.Join(err, errors.New("key does not order the ranks"))
		}
		return errors.Join(err, equal(x, want), sub.Close(), c.Err())
	})
}

// Keys may be as far apart as an int allows.
func TestSplitOrdersByAnyKey(t *testing.T) {
	keys, ranks := []int{math.MaxInt, -1, math.MinInt, 5}, []int{3, 1, 0, 2}
	world(t, len(keys), func(c *host.Communicator) error {
		sub, err := c.Split(context.Background(), 0, keys[c.Rank()])
		if err != nil {
			return err
		}
		return errors.Join(equal([]int{sub.Rank()}, []int{ranks[c.Rank()]}), sub.Close())
	})
}

func TestWindowsPutGetSignalWait(t *testing.T) {
	const n = 3
	world(t, n, func(c *host.Communicator) error {
		w, err := c.NewWindow(context.Background(), 4096)
		if err != nil {
			return err
		}
		for round := range 3 {
			right, left := (c.Rank()+1)%n, (c.Rank()+n-1)%n
			x := []uint64{uint64(c.Rank()*100 + round)}
			if err := errors.Join(w.Put(right, 64, at(x), 8), w.Signal(right), w.Wait(left, 1)); err != nil {
				return err
			}
			got := *(*uint64)(unsafe.Add(w.Local(), 64))
			if got != uint64(left*100+round) {
				return fmt.Errorf("round %d: put of rank %d left %d", round, left, got)
			}
			var y uint64
			if err := w.Get(right, 64, unsafe.Pointer(&y), 8); err != nil {
				return err
			}
			if y != x[0] {
				return fmt.Errorf("get returned %d, want %d", y, x[0])
			}
			if err := c.Barrier(nil); err != nil {
				return err
			}
		}
		if err := w.Put(0, 4090, at([]byte{1, 2, 3, 4, 5, 6, 7}), 7); plugin.CodeOf(err) != plugin.InvalidArgument {
			return fmt.Errorf("put past the end: %w", err)
		}
		return errors.Join(c.Barrier(nil), w.Close())
	})
}

func TestMismatchedFirstCallIsNamedOnEveryRank(t *testing.T) {
	errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
		x := make([]float32, 8)
		if c.Rank() == 0 {
			return c.AllReduce(at(x), at(x), 8, plugin.Float32, plugin.OpSum, nil)
		}
		return c.Broadcast(at(x), at(x), 8, plugin.Float32, 1, nil)
	})
	for _, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch)
		assert.Contains(t, err.Error(), "rank 0 called #1 all_reduce")
		assert.Contains(t, err.Error(), "rank 1 called #1 broadcast")
	}
}

func TestMismatchedLaterCallIsFoundByTheWatchdog(t *testing.T) {
	errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
		x := make([]float32, 8)
		for range 2 {
			if err := errors.Join(c.AllReduce(at(x), at(x), 8, plugin.Float32, plugin.OpSum, nil),
				c.Broadcast(at(x), at(x), 8, plugin.Float32, 1, nil)); err != nil {
				return err
			}
		}
		if c.Rank() == 0 {
			return c.AllReduce(at(x), at(x), 8, plugin.Float32, plugin.OpSum, nil)
		}
		for range 8 { // a root may run ahead of the others
			if err := c.Broadcast(at(x), at(x), 8, plugin.Float32, 1, nil); err != nil {
				return err
			}
		}
		return c.Barrier(nil)
	})
	for _, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch)
	}
}

func TestRecordsTellWhatRan(t *testing.T) {
	world(t, 2, func(c *host.Communicator) error {
		x := make([]float32, 4)
		for range 3 {
			if err := errors.Join(c.Barrier(nil), c.AllReduce(at(x), at(x), 4, plugin.Float32, plugin.OpMax, nil)); err != nil {
				return err
			}
		}
		entries := c.Records()
		if len(entries) != 6 {
			return fmt.Errorf("%d records", len(entries))
		}
		for i, e := range entries {
			name := [2]string{"barrier", "all_reduce"}[i%2]
			if e.Number != uint64(i+1) || e.Collective != name || e.State != "ended" || e.End < e.Begin ||
				(i > 0 && e.Begin < entries[i-1].Begin) {
				return fmt.Errorf("record %d is %+v", i, e)
			}
		}
		var out strings.Builder
		if err := c.WriteRecords(&out); err != nil || !strings.Contains(out.String(),
			`"collective":"all_reduce","dtype":"float32","op":"max","count":4`) {
			return fmt.Errorf("%s, %w", out.String(), err)
		}
		return nil
	})
}

func TestEveryCallIsCompared(t *testing.T) {
	errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
		x := make([]float32, 16)
		for count := range int64(4) {
			if err := c.AllReduce(at(x), at(x), count, plugin.Float32, plugin.OpSum, nil); err != nil {
				return err
			}
		}
		return c.AllReduce(at(x), at(x), int64(8+c.Rank()), plugin.Float32, plugin.OpSum, nil)
	})
	for _, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch)
		assert.Contains(t, err.Error(), "rank 0 called #5 all_reduce, count 8 of float32, op sum; rank 1 called #5 all_reduce, count 9 of float32, op sum")
	}
}

func TestRankThatStaysAwayIsNamed(t *testing.T) {
	errs := worldErrors(t, 3, func(_ int, o *host.Options) { o.Timeout = 2 * time.Second },
		func(c *host.Communicator) error {
			if err := c.Barrier(nil); err != nil {
				return err
			}
			if c.Rank() == 2 {
				for c.Err() == nil {
					runtime.Gosched()
				}
				return nil
			}
			return c.Barrier(nil)
		})
	for _, err := range errs[:2] {
		require.ErrorIs(t, err, plugin.Timeout)
		assert.Contains(t, err.Error(), "rank 2")
	}
}

// Every rank gets the same reason, whatever the program gives: in one line, and as much of it as there is room for.
func TestAbortEndsEveryRank(t *testing.T) {
	long := "x" + strings.Repeat("é", 1<<20)
	for reason, want := range map[string]string{
		"had\nenough\x1b\xff": "rank 0 aborted: had enough??",
		"":                    "rank 0 aborted: no reason given",
		" \n":                 "rank 0 aborted: no reason given",
		long:                  "rank 0 aborted: " + long[:4096-16-1], // half a letter is none
	} {
		reasons := make([]error, 2)
		errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
			if err := c.Barrier(nil); err != nil {
				return err
			}
			if c.Rank() == 0 {
				c.Abort(reason)
			}
			err := c.Barrier(nil)
			reasons[c.Rank()] = c.Err()
			return err
		})
		for rank, err := range errs {
			require.ErrorIs(t, err, plugin.Aborted)
			assert.EqualError(t, reasons[rank], want, "rank %d", rank)
		}
	}
}

func TestPartsNameACommunicator(t *testing.T) {
	require.ErrorContains(t, host.RunTogether(host.Part{}), "part 0 names no communicator")
}

func TestShrinkAfterARankLeft(t *testing.T) {
	const n = 3
	var through sync.WaitGroup // an abort finds no rank in the barrier
	through.Add(n)
	world(t, n, func(c *host.Communicator) error {
		err := c.Barrier(nil)
		through.Done()
		through.Wait()
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			return nil // closes, as far as the others know for good
		}
		c.Abort("rank 1 has left")
		small, err := c.Shrink(context.Background())
		if err != nil {
			return err
		}
		x := []int32{1}
		err = small.AllReduce(at(x), at(x), 1, plugin.Int32, plugin.OpSum, nil)
		return errors.Join(err, equal(x, []int32{2}), small.Close())
	})
}

func TestBadArguments(t *testing.T) {
	x := make([]float32, 64)
	odd := unsafe.Add(at(x), 1)
	var table []badCase
	for name, c := range map[string]struct {
		op   host.Operation
		want string
	}{
		"negative count": {host.Operation{Collective: plugin.AllReduce, Count: -1, DType: plugin.Float32},
			"count -1 is negative"},
		"overflow": {host.Operation{Collective: plugin.AllReduce, Count: math.MaxInt64, DType: plugin.Float32},
			"overflows"},
		"world overflow": {host.Operation{Collective: plugin.AllGather, Count: math.MaxInt64 / 4, DType: plugin.Float32},
			"times world 2 overflows"},
		"null send": {host.Operation{Collective: plugin.AllReduce, Count: 1, DType: plugin.Float32, Recv: at(x)},
			"send memory is null"},
		"null recv": {host.Operation{Collective: plugin.AllReduce, Count: 1, DType: plugin.Float32, Send: at(x)},
			"recv memory is null"},
		"misaligned": {host.Operation{Collective: plugin.AllReduce, Count: 1, DType: plugin.Float32, Send: odd,
			Recv: at(x)}, "not aligned"},
		"dtype": {host.Operation{Collective: plugin.AllReduce, DType: 99}, "unknown dtype 99"},
		"op": {host.Operation{Collective: plugin.AllReduce, DType: plugin.Float32, Op: 77},
			"unknown reduction op 77"},
		"collective": {host.Operation{Collective: 1234}, "unknown collective 1234"},
		"root": {host.Operation{Collective: plugin.Broadcast, DType: plugin.Float32, Root: 2},
			"root 2 is not a rank of a world of 2"},
		"peer": {host.Operation{Collective: plugin.Send, DType: plugin.Float32, Root: -1},
			"peer -1 is not a rank of a world of 2"},
		"counts": {host.Operation{Collective: plugin.AllToAllV, DType: plugin.Float32, SendCounts: []int64{1}},
			"1 send counts for a world of 2"},
		"negative counts": {host.Operation{Collective: plugin.AllToAllV, DType: plugin.Float32, SendCounts: []int64{1, -2}},
			"send count -2 for rank 1 is negative"},
		"displacements": {host.Operation{Collective: plugin.AllGatherV, DType: plugin.Float32, RecvCounts: []int64{1, 1},
			RecvDispls: []int64{0, -4}}, "receive displacement -4 for rank 1 is negative"},
		"overlap": {host.Operation{Collective: plugin.AllReduce, Count: 32, DType: plugin.Float32, Send: at(x),
			Recv: at(x[8:])}, "overlap but are not in place"},
		"window": {host.Operation{Collective: plugin.Put, DType: plugin.Float32}, "no window"},
	} {
		table = append(table, badCase{name, c.op, c.want})
	}
	world(t, 2, func(c *host.Communicator) error {
		for _, bad := range table {
			err := c.Do(&bad.op)
			if plugin.CodeOf(err) != plugin.InvalidArgument || !strings.Contains(err.Error(), bad.want) ||
				!strings.Contains(err.Error(), bad.rank(c)) {
				return fmt.Errorf("%s: want %q, got %w", bad.name, bad.want, err)
			}
		}
		return c.Barrier(nil) // bad arguments leave the communicator usable
	})
}

type badCase struct {
	name string
	op   host.Operation
	want string
}

// rank returns the words by which the message must name the rank.
func (b badCase) rank(c *host.Communicator) string {
	if !b.op.Collective.Valid() {
		return "collective"
	}
	return fmt.Sprintf("on rank %d", c.Rank())
}

func TestMeetingPlaceFromEnvironmentWithRankFromOptions(t *testing.T) {
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	t.Setenv("SHUNT_ID", id.String())
	for _, place := range []string{"", "env"} {
		if place == "env" {
			id, root, err := bootstrap.NewID("")
			require.NoError(t, err)
			defer root.Close()
			t.Setenv("SHUNT_ID", id.String())
		}
		adjust := func(_ int, o *host.Options) { o.ID = place }
		require.NoError(t, errors.Join(worldErrors(t, 2, adjust,
			func(c *host.Communicator) error { return c.Barrier(nil) })...))
	}
	// A world of one in a process of a job is no part of that job.
	alone, err := host.Init(context.Background(), host.Options{World: 1, Transports: []string{"builtin:shm"},
		Logger: silent})
	require.NoError(t, err)
	require.NoError(t, alone.Close())
}

// Two ranks that send to each other first wait in a circle. Both may return the timeout of one, so it must say which
// rank waited for which, and says the way out.
func TestTimeoutSaysWhoWaitedForWhom(t *testing.T) {
	var both sync.WaitGroup // or the second may find that the first has closed
	both.Add(2)
	errs := worldErrors(t, 2, func(_ int, o *host.Options) { o.Timeout = time.Second }, func(c *host.Communicator) error {
		x := make([]float32, 1<<20)
		err := c.Send(at(x), int64(len(x)), plugin.Float32, 1-c.Rank(), nil)
		both.Done()
		both.Wait()
		return err
	})
	for _, err := range errs {
		require.ErrorIs(t, err, plugin.Timeout)
		require.Regexp(t, `rank (0 got no response from peer rank 1|1 got no response from peer rank 0) \(pid \d+, host .+\) for 1s in step \d+ of track \d+ of send by shm/[a-z_]+; that rank called send to rank \d \(after #\d\), count 1048576 of float32, rank`, err)
		require.ErrorContains(t, err, "; where both send first, each waits for the other's recv: calls of one group run together")
	}
}

// A rank that fails and closes at once has sent the reason to the others, whichever of its goroutines found it.
func TestARankThatFailsAndClosesHasToldTheOthers(t *testing.T) {
	restore, err := failpoint.Arm("communicator.told=delay(1s)@1")
	require.NoError(t, err)
	defer restore()
	errs := worldErrors(t, 2, nil, func(c *host.Communicator) error {
		if c.Rank() == 0 {
			return c.Barrier(nil)
		}
		go c.Abort("enough")
		return eventually("the failure", func() bool { return c.Err() != nil })
	})
	require.NoError(t, errs[1])
	require.ErrorIs(t, errs[0], plugin.Aborted)
	require.ErrorContains(t, errs[0], "rank 1 aborted: enough")
}

// A rank that cannot make its engine, or the recorder in it, says so in the ranks' first agreement.
func TestEngineThatCannotBeMadeIsEveryRanks(t *testing.T) {
	for want, spoil := range map[string]func(e *executor.Engine) (*executor.Engine, error){
		"rank 1: no memory for an engine": func(e *executor.Engine) (*executor.Engine, error) {
			return nil, plugin.Errorf(plugin.OutOfMemory, "no memory for an engine")
		},
		"rank 1: executor of rank 1: a flight recorder cannot keep": func(e *executor.Engine) (*executor.Engine, error) {
			return e, nil
		},
	} {
		restore := host.ReplaceNewEngine(func(rank, world int) (*executor.Engine, error) {
			e, err := executor.NewEngine(rank, world)
			if err != nil || rank != 1 {
				return e, err
			}
			e.Close()
			return spoil(e)
		})
		began := time.Now()
		errs := worldErrors(t, 3, nil, func(*host.Communicator) error { return nil })
		restore()
		for rank, err := range errs {
			require.ErrorContains(t, err, fmt.Sprintf("init on rank %d: %s", rank, want))
			require.Equal(t, plugin.CodeOf(errs[1]), plugin.CodeOf(err))
		}
		require.Less(t, time.Since(began), 10*time.Second)
	}
}
