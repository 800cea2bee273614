package host_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// body is a stream from which the bodies of conditional nodes are captured.
func (r *rank) body() (on *rank, done func() error, err error) {
	s, err := r.driver.NewStream(r.ctx, 0)
	return &rank{Communicator: r.Communicator, driver: r.driver, ctx: r.ctx, stream: s},
		func() error { return r.driver.DestroyStream(r.ctx, s) }, err
}

// conditional captures a graph of one conditional node, whose body runs as often as *left says at a launch.
func (r *rank) conditional(kind cudatest.ConditionalKind, left *uint32, on *rank,
	body func() error) (cuda.GraphExec, error) {
	if err := r.driver.BeginCapture(r.ctx, r.stream); err != nil {
		return 0, err
	}
	err := r.driver.Conditional(r.ctx, r.stream, on.stream, kind, func() uint32 {
		if *left == 0 {
			return 0
		}
		*left--
		return 1
	}, body)
	graph, ended := r.driver.EndCapture(r.ctx, r.stream)
	if err = errors.Join(err, ended); err != nil {
		return 0, err
	}
	x, err := r.driver.Instantiate(r.ctx, graph)
	return x, errors.Join(err, r.driver.DestroyGraph(graph))
}

func (r *rank) fillRamp(p cuda.Ptr, elements int) error {
	from, err := r.floats(ramp(r.Rank(), elements))
	return errors.Join(err, r.driver.Copy(r.ctx, p, from, int64(4*elements), r.stream), r.sync(), r.free(from))
}

// Everything that calls put into a stream may stand in the body of a conditional node: calls of every kind run there as
// often as the body does, between calls outside graphs.
func TestDeviceCallsInBodies(t *testing.T) {
	const n, count, long = 2, 100, 300_000
	byCopy(t, n)
	deviceWorld(t, n, func(r *rank) (err error) {
		w, err := r.NewWindow(context.Background(), count*4)
		if err != nil {
			return err
		}
		sym, freed, err := r.symmetric(2 * long)
		if err != nil {
			return err
		}
		on, gone, err := r.body()
		if err != nil {
			return err
		}
		peer, in := 1-r.Rank(), w.On(on)
		b, done := r.buffers(long, 2*long, count)
		half := func(p cuda.Ptr, elements int) cuda.Ptr { return p + cuda.Ptr(4*peer*elements) }
		copied := func(to, from cuda.Ptr, elements int64) error {
			return r.driver.Copy(r.ctx, to, from, 4*elements, on.stream)
		}
		bodies := map[string]func() error{
			"all_reduce": func() error { return r.AllReduce(pointer(b[0]), pointer(b[0]), long, plugin.Float32, plugin.OpMax, on) },
			"all_gather": func() error {
				return errors.Join(r.AllGather(pointer(b[0]), pointer(b[1]), long, plugin.Float32, on),
					copied(b[0], half(b[1], long), long))
			},
			"copies": func() error {
				return errors.Join(r.AllGather(pointer(b[0]), pointer(sym), long, plugin.Float32, on),
					copied(b[0], half(sym, long), long))
			},
			"messages": func() error {
				var g host.Group
				g.Add(host.Operation{Collective: plugin.Send, Send: pointer(b[0]), Count: count, DType: plugin.Float32,
					Root: peer, Stream: on})
				g.Add(host.Operation{Collective: plugin.Recv, Recv: pointer(b[2]), Count: count, DType: plugin.Float32,
					Root: peer, Stream: on})
				return errors.Join(g.Run(r.Communicator), copied(b[0], b[2], count))
			},
			"window": func() error {
				return errors.Join(in.Put(peer, 0, pointer(b[0]), count*4), in.Signal(peer), in.Wait(peer, 1),
					copied(b[0], cuda.Ptr(uintptr(w.Local())), count), in.Signal(peer), in.Wait(peer, 1))
			},
		}
		for _, name := range []string{"all_reduce", "all_gather", "copies", "messages", "window"} {
			for _, kind := range []cudatest.ConditionalKind{cudatest.If, cudatest.While} {
				left := uint32(0)
				x, err := r.conditional(kind, &left, on, bodies[name])
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				for _, times := range []uint32{1, 0, 2, 3} {
					runs := times
					if kind == cudatest.If {
						runs = min(times, 1)
					}
					elements := count
					if name == "all_reduce" || name == "all_gather" || name == "copies" {
						elements = long
					}
					left = times
					err := errors.Join(r.fillRamp(b[0], elements), r.meet(), r.driver.LaunchGraph(r.ctx, x, r.stream), r.sync())
					want := ramp((r.Rank()+int(runs))%n, elements)
					if name == "all_reduce" {
						want = ramp(r.Rank(), elements)
						for i, v := range ramp(peer, elements) {
							if runs > 0 {
								want[i] = float32(math.Max(float64(v), float64(want[i])))
							}
						}
					}
					if err = errors.Join(err, r.expect(b[0], want), deviceSum(r, 10)); err != nil {
						return fmt.Errorf("%s, body %d times: %w", name, times, err)
					}
				}
				if err := r.driver.DestroyGraphExec(x); err != nil {
					return err
				}
			}
		}
		return errors.Join(done(r.meet()), freed(nil), w.Close(), gone(), host.Collect())
	})
}

// A driver may tie nothing to a body. Then the call says so, for this rank alone, and nothing else fails.
func TestDeviceCallsThatBodiesDoNotTake(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		b, done := r.buffers(10, 10)
		on, gone, err := r.body()
		if err != nil {
			return err
		}
		left := uint32(1)
		x, err := r.conditional(cudatest.If, &left, on, func() error {
			r.driver.Fail("RetainOnGraph", 0, cuda.NotSupported)
			err := r.AllReduce(pointer(b[0]), pointer(b[1]), 10, plugin.Float32, plugin.OpSum, on)
			if err == nil || !contains(err, fmt.Sprintf("all_reduce #1 on rank %d: ", r.Rank())) ||
				!contains(err, "the body of a conditional node") {
				return fmt.Errorf("capturing gave %v", err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		err = errors.Join(r.driver.LaunchGraph(r.ctx, x, r.stream), r.driver.DestroyGraphExec(x), r.Err(), r.sync())
		return done(errors.Join(err, deviceSum(r, 10), gone()))
	})
}
