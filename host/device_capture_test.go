package host_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// What another communicator on the GPU does while one is captured leaves the
// capture valid: closing, closing a window, and calls on a second stream.
func TestCapturesStayValidBesideOtherCommunicators(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		b, done := r.buffers(8, 8)
		sum := func() error {
			return r.AllReduce(pointer(b[0]), pointer(b[1]), 8, plugin.Float32, plugin.OpSum, r)
		}
		g, err := r.graph(func() error { return errors.Join(sum(), r.bustle(), sum()) })
		if err != nil {
			return err
		}
		return done(errors.Join(g.replay(), g.destroy()))
	})
}

// The same beside work that does not end: a kernel of another library, say, that
// waits for what this rank does next.
func TestNothingWaitsForTheProgramsOtherStreams(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		word, err := r.driver.AllocHost(r.ctx, 8)
		if err != nil {
			return err
		}
		stranger, err := r.driver.NewStream(r.ctx, 0)
		if err != nil {
			return err
		}
		err = errors.Join(r.driver.WaitValue(r.ctx, stranger, word.Device, 1), r.bustle())
		r.all.meet() // of both ranks, one may still be closing its own
		if n := executor.Detached(); n != 0 {
			err = errors.Join(err, fmt.Errorf("%d communicators could not be freed", n))
		}
		err = errors.Join(err, r.driver.WriteValue(r.ctx, 0, word.Device, 1), r.driver.SynchronizeStream(r.ctx, stranger))
		return errors.Join(err, r.driver.DestroyStream(r.ctx, stranger), r.driver.FreeHost(r.ctx, word))
	})
}

// bustle uses a communicator and a window of its own, on streams that come and
// go, and closes both.
func (r *rank) bustle() error {
	ctx := context.Background()
	other, err := r.Split(ctx, 0, 0)
	if err != nil {
		return err
	}
	w, err := other.NewWindow(ctx, 1<<12)
	if err != nil {
		return err
	}
	b, _ := r.buffers(8, 8) // its end would wait for the stream that is captured
	for range 3 {
		s, err := r.driver.NewStream(r.ctx, 0)
		if err != nil {
			return err
		}
		on := &rank{Communicator: other, driver: r.driver, ctx: r.ctx, stream: s}
		err = other.AllReduce(pointer(b[0]), pointer(b[1]), 8, plugin.Float32, plugin.OpSum, on)
		if err = errors.Join(err, r.driver.SynchronizeStream(r.ctx, s), r.driver.DestroyStream(r.ctx, s)); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), other.Close(), r.free(b...))
}

func TestDeviceGraphsReplayAndOutliveTheCommunicator(t *testing.T) {
	const n, count = 2, 50
	deviceWorld(t, n, func(r *rank) error {
		b, _ := r.buffers(count, count)
		first := b[0]
		// The first call of its kind is captured: what it prepares breaks nothing.
		g, err := r.graph(func() (err error) {
			for range 3 { // in place from the second on
				err = errors.Join(err, r.AllReduce(pointer(b[0]), pointer(b[1]), count, plugin.Float32, plugin.OpSum, r))
				b[0] = b[1]
			}
			return err
		})
		if err != nil {
			return err
		}
		for range 4 {
			if err := errors.Join(g.launch(), r.Barrier(r)); err != nil { // eager calls between replays
				return err
			}
		}
		want := make([]float32, count)
		for i := range want {
			want[i] = 4 * (ramp(0, count)[i] + ramp(1, count)[i])
		}
		if err := r.expect(b[1], want); err != nil {
			return err
		}
		// Closed while the graph lives, which runs on.
		if err := r.Communicator.Close(); err != nil {
			return err
		}
		if err := g.replay(); err != nil {
			return err
		}
		got, err := r.read(b[1], count)
		if err = errors.Join(err, equal(got, want)); err != nil {
			return err
		}
		return errors.Join(g.destroy(), host.Collect(), r.free(first, b[1]))
	})
}

func TestDeviceFailedCaptureFailsNothingElse(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		b, done := r.buffers(10, 10)
		if err := r.driver.BeginCapture(r.ctx, r.stream); err != nil {
			return err
		}
		r.driver.Fail("Submit", 0, cuda.CaptureInvalid)
		err := r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r)
		if plugin.CodeOf(err) != plugin.Device {
			return fmt.Errorf("capturing gave %w", err)
		}
		g, err := r.driver.EndCapture(r.ctx, r.stream)
		return done(errors.Join(err, r.driver.DestroyGraph(g), r.Err(), deviceSum(r, 10)))
	})
}

// A collective that could not be captured is taken back: a rank that has gone on to the next one, and looks before the
// others come there, sees no contradiction.
func TestCallsTakenBackContradictNothing(t *testing.T) {
	looked := make(chan struct{})
	look := sync.OnceFunc(func() { close(looked) })
	deviceWorld(t, 2, func(r *rank) error {
		if r.Rank() == 1 {
			defer look()
		}
		b, done := r.buffers(10, 10)
		sum := func() error {
			return r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, r)
		}
		next := func() error { return r.Broadcast(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, 0, r) }
		if err := errors.Join(sum(), next(), r.meet(), r.driver.BeginCapture(r.ctx, r.stream)); err != nil {
			return err
		}
		r.driver.Fail("Submit", 0, cuda.CaptureInvalid)
		if err := sum(); plugin.CodeOf(err) != plugin.Device {
			return fmt.Errorf("capturing gave %w", err)
		}
		g, err := r.driver.EndCapture(r.ctx, r.stream)
		if err = errors.Join(err, r.driver.DestroyGraph(g)); err != nil {
			return err
		}
		r.all.meet()
		if r.Rank() == 0 {
			<-looked
			return done(errors.Join(next(), r.sync()))
		}
		idle, err := r.driver.NewStream(r.ctx, 0)
		on := &rank{Communicator: r.Communicator, driver: r.driver, ctx: r.ctx, stream: idle}
		err = errors.Join(err, next(), r.Synchronize(on), r.driver.DestroyStream(r.ctx, idle))
		look()
		return done(errors.Join(err, r.sync()))
	})
}

// Ranks have captured the same calls in the same order, and one of them replays another graph than the others: all are
// told, nobody gets a result of two calls. Kernels of one class of protocols find it; those of different classes wait
// for each other, which the emulator and GPUs show.
func TestReplaysOfDifferentGraphsAreTold(t *testing.T) {
	const n, odd, count = 3, 1, 50
	sum := host.Operation{Collective: plugin.AllReduce, DType: plugin.Float32, Count: count}
	for name, change := range map[string]func(op *host.Operation){
		"op":         func(op *host.Operation) { op.Op = plugin.OpMax },
		"dtype":      func(op *host.Operation) { op.DType = plugin.Int32 },
		"count":      func(op *host.Operation) { op.Count-- },
		"collective": func(op *host.Operation) { op.Collective = plugin.ReduceScatter },
	} {
		t.Run(name, func(t *testing.T) {
			other := sum
			change(&other)
			errs := deviceErrors(t, gpus(t, n), func(_ int, o *host.Options) { o.Timeout = time.Minute }, func(r *rank) error {
				b, done := r.buffers(n*count, n*count)
				var graphs []captured
				for _, op := range []host.Operation{sum, other} {
					op.Send, op.Recv, op.Stream = pointer(b[0]), pointer(b[1]), r
					g, err := r.graph(func() error { return r.Do(&op) })
					if err != nil {
						return err
					}
					graphs = append(graphs, g)
				}
				err := errors.Join(graphs[0].replay(), graphs[1].replay(), graphs[0].replay())
				if err == nil && r.Rank() == odd {
					err = graphs[1].replay()
				} else if err == nil {
					err = graphs[0].replay()
				}
				for end := time.Now().Add(5 * time.Second); r.Err() == nil && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
				err = errors.Join(err, r.Err())
				for _, g := range graphs {
					err = errors.Join(err, g.destroy())
				}
				return done(err)
			})
			for rank, err := range errs {
				require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
				require.ErrorContains(t, err, "all_reduce (sum, float32) of 200 bytes", "rank %d", rank)
				require.ErrorContains(t, err, fmt.Sprintf("rank %d", odd), "rank %d", rank)
			}
		})
	}
}

// A group of a world of one that cannot be captured ends the capture, as in any other world, and not the communicator.
func TestALoneGroupThatCannotBeCapturedEndsTheCapture(t *testing.T) {
	deviceWorld(t, 1, func(r *rank) error {
		b, done := r.buffers(8, 8)
		if err := r.driver.BeginCapture(r.ctx, r.stream); err != nil {
			return err
		}
		r.driver.Fail("Copy", 0, cuda.OutOfMemory)
		if err := r.toItself(b[0], b[1], 8, 1); plugin.CodeOf(err) != plugin.OutOfMemory || r.Err() != nil {
			return fmt.Errorf("a copy that fails gave %w, and the communicator %w", err, r.Err())
		}
		if graph, err := r.driver.EndCapture(r.ctx, r.stream); err == nil {
			if err := r.driver.DestroyGraph(graph); err != nil {
				return err
			}
		}
		return done(nil)
	})
}
