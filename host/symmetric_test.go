package host_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

// symmetricCalls returns the collectives that run by copies, with what each rank
// must have received.
func symmetricCalls(r *rank, send, recv cuda.Ptr, count, root int) []struct {
	name   string
	call   func() error
	result []float32
} {
	n := r.World()
	var gathered, exchanged []float32
	for p := range n {
		gathered = append(gathered, block(p, 0, count)...)
		exchanged = append(exchanged, block(p, r.Rank()*count, count)...)
	}
	return []struct {
		name   string
		call   func() error
		result []float32
	}{
		{"all_gather", func() error { return r.AllGather(pointer(send), pointer(recv), int64(count), plugin.Float32, r) },
			gathered},
		{"all_to_all", func() error { return r.AllToAll(pointer(send), pointer(recv), int64(count), plugin.Float32, r) },
			exchanged},
		{"broadcast", func() error {
			return r.Broadcast(pointer(send), pointer(recv), int64(count), plugin.Float32, root, r)
		}, block(root, 0, count)},
		{"scatter", func() error {
			return r.Scatter(pointer(send), pointer(recv), int64(count), plugin.Float32, root, r)
		}, block(root, r.Rank()*count, count)},
	}
}

func TestSymmetricMemoryIsReachedByCopies(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		t.Run(fmt.Sprint("world ", n), func(t *testing.T) {
			byCopy(t, n)
			deviceWorld(t, n, func(r *rank) error {
				const count, at = 1000, 17
				recv, end, err := r.symmetric(at + n*count)
				if err != nil {
					return err
				}
				b, done := r.buffers(n * count)
				for root := range n {
					for _, c := range symmetricCalls(r, b[0], recv+4*at, count, root) {
						if err := r.fill(recv, at+n*count, -1); err != nil {
							return err
						}
						by, err := copied(r, c.call)
						if err != nil {
							return fmt.Errorf("%s: %w", c.name, err)
						}
						want := int64(n)
						if c.name == "broadcast" && n > 2 {
							want = 0 // which has no such algorithm
						}
						if by != want {
							return fmt.Errorf("%s, root %d: %d ranks ran it by copies, want %d", c.name, root, by, want)
						}
						if err := r.expect(recv+4*at, c.result); err != nil {
							return fmt.Errorf("%s, root %d: %w", c.name, root, err)
						}
						if err := r.expect(recv, repeated(-1, at)); err != nil {
							return fmt.Errorf("%s, root %d: before the receive memory: %w", c.name, root, err)
						}
					}
				}
				return done(end(nil))
			})
		})
	}
}

// An all_reduce by copies with an odd rest, with shards and without, out of place and
// in place by turns, and with factors, which engines cannot apply.
func TestSymmetricAllReduceByCopies(t *testing.T) {
	type of struct {
		algorithm string
		n         int
	}
	for _, test := range fewer(of{"ce", 4}, of{"ce", 8}, of{"ce_reduce", 4}, of{"ce_reduce", 8}, of{"ce", 2},
		of{"ce_reduce", 2}, of{"ce_reduce", 3}) {
		n := test.n
		t.Run(fmt.Sprint(test.algorithm, ", world ", n), func(t *testing.T) {
			t.Setenv("SHUNT_ALGO", "all_reduce=cudaipc/"+test.algorithm+",*")
			const most = 3000
			deviceWorld(t, n, func(r *rank) error {
				recv, end, err := r.symmetric(most)
				if err != nil {
					return err
				}
				b, done := r.buffers(most)
				sum := float32(n * (n + 1) / 2)
				for _, count := range []int{1, 4*n - 1, 4 * n, 4*n + 5, most - 1, most, most} {
					for _, inPlace := range []bool{false, true, false, false} {
						for _, op := range []plugin.Op{plugin.OpSum, plugin.OpMax, plugin.OpPremulSum} {
							send, want := b[0], sum
							if inPlace {
								send = recv
							}
							err := errors.Join(r.fill(recv, most, -1), r.fill(send, count, float32(r.Rank()+1)), r.Barrier(r), r.sync())
							err = errors.Join(err, r.meet())
							before := cudaipctest.Delivered.Load()
							by, failed := copied(r, func() error {
								return r.Do(&host.Operation{Collective: plugin.AllReduce, Send: pointer(send), Recv: pointer(recv),
									Count: int64(count), DType: plugin.Float32, Op: op, Scalar: 2, Stream: r})
							})
							switch op {
							case plugin.OpMax:
								want = float32(n)
							case plugin.OpPremulSum:
								want *= 2
							}
							if test.algorithm == "ce" || inPlace || op == plugin.OpPremulSum ||
								count < 4*n { // engines alone carry the others
								if d := cudaipctest.Delivered.Load() - before; d != 0 {
									return fmt.Errorf("%d elements, in place %v, %s: %d chunks delivered", count, inPlace, op, d)
								}
							} else if d := cudaipctest.Delivered.Load() - before; d != int64(2*n) {
								return fmt.Errorf("%d elements, in place %v, %s: %d chunks delivered, want %d", count, inPlace, op, d, 2*n)
							}
							if err := errors.Join(err, failed, r.expect(recv,
								append(repeated(want, count), repeated(-1, most-count)...))); err != nil || by != int64(n) {
								return fmt.Errorf("%d elements, in place %v, %s: %d ranks by copies, %w", count, inPlace, op, by, err)
							}
						}
					}
				}
				return done(end(nil))
			})
		})
	}
}

// In place, all_gather copies to peers alone.
func TestSymmetricAllGatherInPlace(t *testing.T) {
	const n, count = 4, 33
	byCopy(t, n)
	deviceWorld(t, n, func(r *rank) error {
		recv, end, err := r.symmetric(n * count)
		if err != nil {
			return err
		}
		own := recv + cuda.Ptr(4*r.Rank()*count)
		var want []float32
		for p := range n {
			want = append(want, repeated(float32(p), count)...)
		}
		for range 5 {
			err := errors.Join(r.fill(recv, n*count, -1), r.fill(own, count, float32(r.Rank())), r.Barrier(r), r.sync())
			by, failed := copied(r, func() error { return r.AllGather(pointer(own), pointer(recv), count, plugin.Float32, r) })
			if err := errors.Join(err, failed, r.expect(recv, want)); err != nil || by != n {
				return fmt.Errorf("%d ranks by copies, %w", by, err)
			}
		}
		for _, e := range r.Records() { // the flight recorder tells them apart
			if e.Symmetric != (e.Collective == "all_gather") {
				return fmt.Errorf("recorded %+v", e)
			}
		}
		return end(nil)
	})
}

func TestWindowsAreSymmetric(t *testing.T) {
	const n, count = 3, 100
	byCopy(t, n)
	deviceWorld(t, n, func(r *rank) error {
		b, done := r.buffers(count)
		for range 3 {
			w, err := r.NewWindow(context.Background(), (n+1)*count*4)
			if err != nil {
				return err
			}
			for _, at := range []cuda.Ptr{0, 4 * count} {
				to := cuda.Ptr(uintptr(w.Local())) + at
				by, err := copied(r, func() error { return r.AllGather(pointer(b[0]), pointer(to), count, plugin.Float32, r) })
				if err != nil || by != n {
					return fmt.Errorf("%d ranks by copies, %w", by, err)
				}
				want := append(append(block(0, 0, count), block(1, 0, count)...), block(2, 0, count)...)
				if err := r.expect(to, want); err != nil {
					return err
				}
			}
			if err := r.Deregister(w.Local()); !errors.Is(err, plugin.InvalidArgument) {
				return fmt.Errorf("deregistering a window gave %w", err)
			}
			if err := w.Close(); err != nil {
				return err
			}
		}
		return done(nil)
	})
}

// What lies only partly in a range, or in none, is as without any.
func TestMemoryOutsideOfRangesIsNotSymmetric(t *testing.T) {
	const n, count = 2, 100
	byCopy(t, n)
	deviceWorld(t, n, func(r *rank) error {
		m, err := r.driver.CreateMemory(r.ctx, r.Rank(), 4*4*n*count)
		if err != nil {
			return err
		}
		first, second := m.Address, m.Address+4*2*n*count // between them is memory that is in none
		if err := errors.Join(r.RegisterSymmetric(pointer(second), 4*n*count),
			r.RegisterSymmetric(pointer(first), 4*n*count)); err != nil {
			return err
		}
		b, done := r.buffers(count)
		for _, test := range []struct {
			at   cuda.Ptr
			want int64
		}{{first, n}, {first + 4, 0}, {first + 4*n*count, 0}, {second - 4, 0}, {second, n}, {second + 4*n*count, 0}} {
			by, err := copied(r, func() error {
				return r.AllGather(pointer(b[0]), pointer(test.at), count, plugin.Float32, r)
			})
			if err != nil || by != test.want {
				return fmt.Errorf("%d bytes from the first range on: %d ranks by copies, want %d, %w", test.at-first, by, test.want,
					err)
			}
			if err := r.expect(test.at, append(block(0, 0, count), block(1, 0, count)...)); err != nil {
				return err
			}
		}
		return done(errors.Join(r.Deregister(pointer(first)), r.Deregister(pointer(second)), r.sync(),
			r.driver.Unmap(r.ctx, m)))
	})
}

// A call that is the latest one again, but for its memory, is by copies where that lies in a range now; where it did
// before does not matter.
func TestRepeatedCallsInAndOutOfRanges(t *testing.T) {
	const n, count = 2, 100
	byCopy(t, n)
	deviceWorld(t, n, func(r *rank) error {
		m, err := r.driver.CreateMemory(r.ctx, r.Rank(), 4*4*n*count)
		if err != nil {
			return err
		}
		first, outside, second := m.Address, m.Address+4*n*count, m.Address+4*2*n*count
		const one = 4 * n * count
		if err := errors.Join(r.RegisterSymmetric(pointer(first), one+4), // overlaps what is called outside, in part
			r.RegisterSymmetric(pointer(second), 2*one)); err != nil {
			return err
		}
		b, done := r.buffers(count)
		want := append(block(0, 0, count), block(1, 0, count)...)
		inside := int64(0)
		by, err := copied(r, func() error {
			for i, to := range []cuda.Ptr{first, first, first + 4, second, second + one, outside, outside + 4,
				first, outside, second + 8, second, outside, outside, first} {
				err := errors.Join(r.fill(to, n*count, -1),
					r.AllGather(pointer(b[0]), pointer(to), count, plugin.Float32, r), r.expect(to, want))
				if err != nil {
					return fmt.Errorf("call %d: %w", i, err)
				}
				if to <= first+4 || to >= second {
					inside++
				}
			}
			return nil
		})
		if err != nil || by != n*inside {
			return fmt.Errorf("%d by copies, want %d, %w", by, n*inside, err)
		}
		for range 2 { // also once nothing is a range any more
			err := errors.Join(r.Deregister(pointer(second)), r.AllGather(pointer(b[0]), pointer(second), count,
				plugin.Float32, r), r.expect(second, want))
			if err != nil {
				return err
			}
			second = first
		}
		return done(errors.Join(r.sync(), r.driver.Unmap(r.ctx, m)))
	})
}

func TestSymmetricMemoryWhereThereIsNothingToDo(t *testing.T) {
	world(t, 2, func(c *host.Communicator) error {
		b := make([]byte, 10)
		return errors.Join(c.RegisterSymmetric(at(b), 10), c.Deregister(at(b)))
	})
	deviceWorld(t, 1, func(r *rank) error {
		recv, end, err := r.symmetric(10)
		if err != nil {
			return err
		}
		b, done := r.buffers(10)
		err = r.AllGather(pointer(b[0]), pointer(recv), 10, plugin.Float32, r)
		return done(end(errors.Join(err, r.expect(recv, block(0, 0, 10)))))
	})
}

// What would run with symmetric memory is explained with and without it, and only
// large messages are worth it.
func TestSymmetricAlgorithmsAreExplained(t *testing.T) {
	deviceWorld(t, 4, func(r *rank) error {
		for _, test := range []struct {
			collective plugin.Collective
			bytes      int64
			chosen     string
		}{
			{plugin.AllGather, 8 << 20, "cudaipc/direct"}, {plugin.AllGather, 32 << 20, "cudaipc/ce"},
			{plugin.AllToAll, 8 << 20, "cudaipc/direct"}, {plugin.AllToAll, 128 << 20, "cudaipc/ce"},
			{plugin.AllGather, 1 << 10, "cudaipc/ll"}, {plugin.Broadcast, 512 << 20, "cudaipc/chain"},
			{plugin.Scatter, 64 << 20, "cudaipc/ce"}, {plugin.Scatter, 1 << 10, "cudaipc/ll128"},
			{plugin.AllGatherV, 64 << 20, "cudaipc/ll128"}, {plugin.AllReduce, 512 << 20, "cudaipc/ce"},
			{plugin.AllReduce, 2 << 30, "cudaipc/ce_reduce"}, {plugin.AllReduce, 64 << 20, "cudaipc/staged"},
		} {
			e, err := r.ExplainSymmetric(test.collective, plugin.Float32, plugin.OpSum, test.bytes)
			if err != nil || e.Chosen != test.chosen {
				return fmt.Errorf("%s of %d bytes runs %s, want %s, %w", test.collective, test.bytes, e.Chosen, test.chosen, err)
			}
		}
		e, err := r.Explain(plugin.AllGather, plugin.Float32, plugin.OpSum, 128<<20)
		if err != nil || e.Chosen != "cudaipc/direct" || e.Symmetric {
			return fmt.Errorf("all_gather without symmetric memory runs %s, %w", e.Chosen, err)
		}
		for _, rejected := range e.Rejected {
			if rejected.Name == "cudaipc/ce" && rejected.Reason == "needs receive memory that is registered as symmetric" {
				return nil
			}
		}
		return fmt.Errorf("the explanation does not say what symmetric memory is good for: %v", e)
	})
}
