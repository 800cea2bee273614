package host_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// On GPUs too every call is compared: the first, a later one, and one that is only captured. All ranks learn of it
// at the watchdog's next look, a quarter of a second later at most, however many calls are enqueued behind it, whether
// a rank calls again or not, and however rarely it warns of what waits.
func TestDeviceRanksThatDisagreeAreTold(t *testing.T) {
	t.Setenv("SHUNT_STALL_WARNING", "1m")
	const n, odd, count = 3, 1, 1000
	const soon = 250 * time.Millisecond
	type change func(op *host.Operation)
	base := func(collective plugin.Collective) host.Operation {
		return host.Operation{Collective: collective, DType: plugin.Float32, Count: count}
	}
	root := func(op *host.Operation) { op.Root = odd }
	short := func(op *host.Operation) { op.Count-- }
	dtype := func(op *host.Operation) { op.DType = plugin.Int32 }
	for name, test := range map[string]struct {
		collective plugin.Collective
		change     change
	}{
		"op":                      {plugin.AllReduce, func(op *host.Operation) { op.Op = plugin.OpMax }},
		"dtype of all_reduce":     {plugin.AllReduce, dtype},
		"dtype of all_gather":     {plugin.AllGather, dtype},
		"count of all_reduce":     {plugin.AllReduce, short},
		"count of all_gather":     {plugin.AllGather, short},
		"count of reduce_scatter": {plugin.ReduceScatter, short},
		"count of all_to_all":     {plugin.AllToAll, short},
		"count of broadcast":      {plugin.Broadcast, short},
		"root of broadcast":       {plugin.Broadcast, root},
		"root of reduce":          {plugin.Reduce, root},
		"root of gather":          {plugin.Gather, root},
		"root of scatter":         {plugin.Scatter, root},
		"collective":              {plugin.AllGather, func(op *host.Operation) { op.Collective = plugin.AllToAll }},
	} {
		for _, way := range []string{"first call", "later call", "captured"} {
			t.Run(name+"/"+way, func(t *testing.T) {
				var late [n]int // twentieths of that time, without those that a busy machine misses
				errs := deviceErrors(t, gpus(t, n), func(_ int, o *host.Options) { o.Timeout = time.Minute }, func(r *rank) error {
					b, done := r.buffers(n*count, n*count)
					call := func(op host.Operation) error {
						op.Send, op.Recv, op.Stream = pointer(b[0]), pointer(b[1]), r
						return r.Do(&op)
					}
					all, other := base(test.collective), base(test.collective)
					test.change(&other)
					if way != "first call" {
						for range 10 { // alike, so that all plans are known
							if err := errors.Join(call(all), call(other)); err != nil {
								return fmt.Errorf("calls that are alike: %w", err)
							}
						}
						if err := r.driver.SynchronizeStream(r.ctx, r.stream); err != nil {
							return err
						}
					}
					if err := r.meet(); err != nil {
						return err
					}
					if r.Rank() == odd {
						all = other
					}
					if way == "captured" {
						if err := r.driver.BeginCapture(r.ctx, r.stream); err != nil {
							return err
						}
					}
					err := call(all)
					if way == "captured" {
						graph, ended := r.driver.EndCapture(r.ctx, r.stream)
						err = errors.Join(err, ended)
						if ended == nil {
							err = errors.Join(err, r.driver.DestroyGraph(graph))
						}
					}
					tick := time.NewTicker(soon / 20)
					defer tick.Stop()
					for r.Err() == nil && late[r.Rank()] < 100 {
						<-tick.C
						late[r.Rank()]++
					}
					return done(errors.Join(err, r.Err()))
				})
				for rank, err := range errs {
					require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
					require.NotContains(t, err.Error(), "calls that are alike")
					require.ErrorContains(t, err, fmt.Sprintf("rank %d called #", odd), "rank %d", rank)
					require.ErrorContains(t, err, test.collective.String(), "rank %d", rank)
					require.Less(t, late[rank], 30, "rank %d", rank) // a look, and half for the news of it
				}
			})
		}
	}
}

// So they do where the others have enqueued many calls before the rank makes the one that differs.
func TestDeviceRanksThatDisagreeLateAreTold(t *testing.T) {
	t.Setenv("SHUNT_STALL_WARNING", "1m")
	const odd, count, ahead = 1, 1000, 200
	errs := deviceErrors(t, gpus(t, 3), func(_ int, o *host.Options) { o.Timeout = time.Minute }, func(r *rank) error {
		b, done := r.buffers(count, count)
		call := func(op plugin.Op) error {
			return r.Do(&host.Operation{Collective: plugin.AllReduce, DType: plugin.Float32, Count: count, Op: op,
				Send: pointer(b[0]), Recv: pointer(b[1]), Stream: r})
		}
		err := errors.Join(call(plugin.OpSum), call(plugin.OpMax), r.driver.SynchronizeStream(r.ctx, r.stream))
		for range ahead {
			if err == nil && r.Rank() != odd {
				err = call(plugin.OpSum)
			}
		}
		r.all.meet()
		if err == nil && r.Rank() == odd {
			err = call(plugin.OpMax)
		}
		for end := time.Now().Add(5 * time.Second); r.Err() == nil && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		return done(errors.Join(err, r.Err()))
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
		// As rank 0 remembers it, or as kernels do.
		require.Regexp(t, `rank 1 called #3 all_reduce|rank 1 (runs )?all_reduce \(max, float32\)`, err.Error(), "rank %d", rank)
	}
}
