package host_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestDeviceProbeNamesThePairThatDoesNotWork(t *testing.T) {
	restore, err := failpoint.Arm("device.probe=corrupt@5") // rank and peer are those of the fifth copy
	require.NoError(t, err)
	defer restore()
	errs := deviceErrors(t, gpus(t, 3), nil, nil)
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Device, "rank %d", rank)
		require.ErrorContains(t, err, "peer-to-peer access between the two does not work")
		require.Equal(t, errs[0].Error()[len("init on rank 0"):], err.Error()[len("init on rank 0"):],
			"all ranks say the same")
	}
}

func TestDeviceInitFailsAlikeEverywhere(t *testing.T) {
	for _, method := range []string{"Devices", "Retain", "AllocHost", "NewEvent", "NewStream", "CreateMemory",
		"ExportMemory", "ReserveRange", "MapChunk", "Copy", "LoadModule", "Function"} {
		t.Run(method, func(t *testing.T) {
			drivers := gpus(t, 3)
			drivers[1].Fail(method, 0, cuda.OutOfMemory)
			for rank, err := range deviceErrors(t, drivers, nil, nil) {
				require.Error(t, err, "rank %d", rank)
				require.Equal(t, plugin.OutOfMemory, plugin.CodeOf(err), "rank %d: %v", rank, err)
				require.ErrorContains(t, err, "rank 1", "rank %d", rank)
			}
		})
	}
}

// Whichever call of a new communicator fails, what is in the streams has ended before the memory goes.
func TestDeviceInitThatFailsHalfWayLeavesNothingRunning(t *testing.T) {
	for _, method := range []string{"Copy", "Set"} {
		for after := 0; ; after++ {
			drivers := gpus(t, 3)
			drivers[1].Fail(method, after, cuda.OutOfMemory)
			errs := deviceErrors(t, drivers, nil, func(*rank) error { return nil })
			if drivers[1].Pending(method) {
				require.NoError(t, errors.Join(errs...))
				require.NotZero(t, after, method)
				break
			}
			for rank, err := range errs {
				require.ErrorIs(t, err, plugin.OutOfMemory, "rank %d, %s %d", rank, method, after)
				require.ErrorContains(t, err, "rank 1", "rank %d, %s %d", rank, method, after)
			}
		}
	}
}

// Whichever way a message of its length goes.
func TestDeviceTimeoutNamesTheAbsentRank(t *testing.T) {
	for algorithm, count := range map[string]int{
		"one_shot_ll": 10, "one_shot_ll128": 16 << 10, "two_shot_ll128": 128 << 10, "staged": 2 << 20,
	} {
		t.Run(algorithm, func(t *testing.T) { timeoutNamesTheAbsentRank(t, algorithm, count) })
	}
}

func timeoutNamesTheAbsentRank(t *testing.T, algorithm string, count int) {
	errs := deviceErrors(t, gpus(t, 3), func(_ int, o *host.Options) { o.Timeout = 1500 * time.Millisecond },
		func(r *rank) error {
			b, done := r.buffers(count, count)
			defer func() { _ = done(nil) }()
			reduce := func() error {
				return errors.Join(r.AllReduce(pointer(b[0]), pointer(b[1]), int64(count), plugin.Float32, plugin.OpSum, r),
					r.sync())
			}
			err := reduce()
			if err != nil {
				return err
			}
			if r.Rank() != 2 {
				err = reduce()
			} else if err = eventually("somebody's timeout", func() bool { return r.Err() != nil }); err == nil {
				err = r.Err()
			}
			return err
		})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Timeout, "rank %d", rank)
		require.ErrorContains(t, err, "no response from peer rank 2", "rank %d", rank)
		require.ErrorContains(t, err, "rank 2 is in the same process, where cudaFree", "rank %d", rank)
		require.Regexp(t, "rank 2 has not called all_reduce #2, in which rank [01] runs cudaipc/"+algorithm+
			`, kernel \w+ \(step \d+ of track 0\)`, err.Error(), "rank %d", rank)
	}
	require.ErrorContains(t, errs[0], "shrink or re-create it")
}

// A rank that ends well does not leave the others to wait for their timeout.
func TestDeviceRankThatHasClosedIsNamed(t *testing.T) {
	began := time.Now()
	errs := deviceErrors(t, gpus(t, 3), nil, func(r *rank) error {
		b, done := r.buffers(10, 10)
		defer func() { _ = done(nil) }()
		err := errors.Join(r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r), r.sync())
		if err != nil || r.Rank() == 1 {
			return errors.Join(err, r.Close())
		}
		return errors.Join(r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r),
			r.driver.SynchronizeStream(r.ctx, r.stream), r.Err())
	})
	require.NoError(t, errs[1])
	for _, rank := range []int{0, 2} {
		require.ErrorIs(t, errs[rank], plugin.Closed, "rank %d", rank)
		require.ErrorContains(t, errs[rank], "rank 1 (pid")
		require.ErrorContains(t, errs[rank], "has closed the communicator while rank", "rank %d", rank)
		require.ErrorContains(t, errs[rank], "rank 1 has not called all_reduce #2", "rank %d", rank)
	}
	require.Less(t, time.Since(began), 10*time.Second)
}

// Nor does it fail ranks that need nothing more of it.
func TestDeviceRankThatHasClosedIsNotMissed(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		b, done := r.buffers(10, 10)
		defer func() { _ = done(nil) }()
		err := errors.Join(r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r), r.sync())
		if err != nil || r.Rank() == 1 {
			return errors.Join(err, r.Close())
		}
		looked := time.Now().Add(800 * time.Millisecond) // three times
		for ; time.Now().Before(looked) && err == nil; time.Sleep(10 * time.Millisecond) {
			err = r.Err()
		}
		return err
	})
}

// A message that is not sent any more is not waited for until the timeout, whether the receive stands alone or in a
// group. What was sent before is taken, however much later, also if a graph has sent it.
func TestDeviceMessageOfARankThatHasClosed(t *testing.T) {
	const count = 100
	for name, how := range map[string]struct{ group, captured bool }{
		"alone": {}, "in a group": {group: true}, "captured": {captured: true},
	} {
		t.Run(name, func(t *testing.T) {
			began, closed := time.Now(), make(chan struct{})
			errs := deviceErrors(t, gpus(t, 3), nil, func(r *rank) error {
				b, done := r.buffers(count)
				message := func(collective plugin.Collective, peer int) error {
					op := host.Operation{Collective: collective, Send: pointer(b[0]), Recv: pointer(b[0]), Count: count,
						DType: plugin.Float32, Root: peer, Stream: r}
					if !how.group {
						return r.Do(&op)
					}
					var g host.Group
					g.Add(op)
					return g.Run(r.Communicator)
				}
				send := func() error { return message(plugin.Send, 0) }
				var g captured
				var err error
				switch r.Rank() {
				case 1:
					if how.captured {
						if g, err = r.graph(send); err != nil {
							return err
						}
						send = func() error { return g.launch() }
					}
					for range 3 {
						err = errors.Join(err, send())
					}
					err = done(err)
					if how.captured {
						err = errors.Join(err, g.destroy())
					}
					err = errors.Join(err, r.Close())
					close(closed)
					return err
				case 0:
					<-closed
					looked := time.Now().Add(3 * 250 * time.Millisecond)
					for ; time.Now().Before(looked) && err == nil; time.Sleep(10 * time.Millisecond) {
						err = r.Err()
					}
					for range 3 {
						err = errors.Join(err, message(plugin.Recv, 1), r.sync())
					}
					if err != nil || how.captured {
						return done(err)
					}
					err = message(plugin.Recv, 1)
					return errors.Join(err, r.driver.SynchronizeStream(r.ctx, r.stream), r.Err(), r.free(b...))
				}
				return done(nil)
			})
			require.NoError(t, errors.Join(errs[1:]...))
			if how.captured {
				require.NoError(t, errs[0])
				return
			}
			require.ErrorIs(t, errs[0], plugin.Closed)
			require.ErrorContains(t, errs[0], "has closed the communicator while rank 0 waits for it")
			require.Less(t, time.Since(began), 8*time.Second)
		})
	}
}

// A program that waits for its stream by itself, as torch does, must not rely on what an aborted call has left.
func TestDeviceFaultIsTheNextCallsError(t *testing.T) {
	calls := map[string]func(r *rank, b []cuda.Ptr) error{
		"a call": func(r *rank, b []cuda.Ptr) error {
			return r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r)
		},
		"a group": func(r *rank, b []cuda.Ptr) error {
			var g host.Group
			for _, op := range []host.Operation{
				{Collective: plugin.Send, Send: pointer(b[0])}, {Collective: plugin.Recv, Recv: pointer(b[1])},
			} {
				op.Count, op.DType, op.Root, op.Stream = 10, plugin.Float32, 1-r.Rank(), r
				g.Add(op)
			}
			return g.Run(r.Communicator)
		},
		"Err": func(r *rank, _ []cuda.Ptr) error { return r.Err() },
	}
	for name, next := range calls {
		t.Run(name, func(t *testing.T) {
			errs := deviceErrors(t, gpus(t, 2), func(_ int, o *host.Options) { o.Timeout = time.Second }, func(r *rank) error {
				b, done := r.buffers(10, 10)
				defer func() { _ = done(nil) }()
				if err := errors.Join(calls["a call"](r, b), r.sync()); err != nil {
					return err
				}
				if r.Rank() == 1 { // stays away
					return errors.Join(eventually("the timeout", func() bool { return r.Err() != nil }), r.Err())
				}
				if err := errors.Join(calls["a call"](r, b), r.driver.SynchronizeStream(r.ctx, r.stream)); err != nil {
					return fmt.Errorf("before the next call: %w", err)
				}
				return next(r, b)
			})
			for rank, err := range errs {
				require.ErrorIs(t, err, plugin.Timeout, "rank %d", rank)
				require.ErrorContains(t, err, "no response from peer rank 1", "rank %d", rank)
				require.NotContains(t, err.Error(), "before the next call")
			}
		})
	}
}

// Nor on what ranks have computed that called different things.
func TestDeviceContradictionsAreFoundBySynchronize(t *testing.T) {
	errs := deviceErrors(t, gpus(t, 2), nil, func(r *rank) error {
		b, done := r.buffers(20, 20)
		defer func() { _ = done(nil) }()
		for _, count := range []int64{10, int64(10 + r.Rank())} {
			err := errors.Join(r.AllReduce(pointer(b[0]), pointer(b[1]), count, plugin.Float32, plugin.OpSum, r), r.sync())
			if err != nil {
				return err
			}
		}
		return nil
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
		require.ErrorContains(t, err, "count 11", "rank %d", rank)
	}
}

// Of a message the other rank's number says nothing: the timeout names what was enqueued last, as do the records.
func TestDeviceTimeoutOfAMessageNamesItsPlan(t *testing.T) {
	errs := deviceErrors(t, gpus(t, 2), func(_ int, o *host.Options) { o.Timeout = 1500 * time.Millisecond },
		func(r *rank) error {
			b, done := r.buffers(10, 10)
			defer func() { _ = done(nil) }()
			if err := errors.Join(r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r),
				r.sync()); err != nil {
				return err
			}
			if r.Rank() == 0 {
				err := errors.Join(r.Recv(pointer(b[1]), 10, plugin.Float32, 1, r), r.sync())
				all := r.Records()
				if last := all[len(all)-1]; !strings.HasPrefix(last.Plan, "cudaipc/") || !strings.Contains(last.Plan, ", kernel ") {
					return fmt.Errorf("the record of %s says that %q ran", last.Collective, last.Plan)
				}
				return err
			}
			return errors.Join(eventually("the timeout", func() bool { return r.Err() != nil }), r.Err())
		})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Timeout, "rank %d", rank)
		require.Regexp(t, `rank 0 enqueued recv last, in which it runs cudaipc/\w+, kernel \w+ \(step \d+ of track 0\)`,
			err.Error(), "rank %d", rank)
	}
}

func TestDeviceAbortEndsKernelsThatWait(t *testing.T) {
	errs := deviceErrors(t, gpus(t, 2), nil, func(r *rank) error {
		b, done := r.buffers(10, 10)
		defer func() { _ = done(nil) }()
		err := errors.Join(r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r),
			r.driver.SynchronizeStream(r.ctx, r.stream), r.Barrier(r))
		if err != nil {
			return err
		}
		if r.Rank() == 0 {
			err = r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r)
			r.Abort("enough")
		} else {
			err = eventually("the abort", func() bool { return r.Err() != nil })
		}
		began := time.Now()
		err = errors.Join(err, r.sync())
		if took := time.Since(began); took > 2*time.Second {
			return fmt.Errorf("the kernel took %v to end", took)
		}
		return err
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Aborted, "rank %d", rank)
		require.ErrorContains(t, err, "rank 0 aborted: enough", "rank %d", rank)
	}
}

func TestDeviceContradictionsAreFound(t *testing.T) {
	errs := deviceErrors(t, gpus(t, 2), func(_ int, o *host.Options) { o.Timeout = 20 * time.Second },
		func(r *rank) error {
			b, done := r.buffers(20, 20)
			defer func() { _ = done(nil) }()
			for _, op := range []func() error{
				func() error { return r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r) },
				func() error { return r.Broadcast(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, 0, r) },
			} {
				if err := errors.Join(op(), r.sync()); err != nil {
					return err
				}
			}
			var err error
			if r.Rank() == 0 {
				err = r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r)
			} else {
				err = r.Broadcast(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, 1, r)
			}
			return errors.Join(err, eventually("the verdict", func() bool { return r.Err() != nil }), r.Err())
		})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
		require.ErrorContains(t, err, "ranks disagree", "rank %d", rank)
	}
}
