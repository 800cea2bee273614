package host_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

// byCopy forces the algorithm that needs symmetric memory, where there is any.
func byCopy(t *testing.T, world int) {
	clauses := "all_gather=cudaipc/copy,*;all_to_all=cudaipc/copy,*;scatter=cudaipc/copy,*"
	if world == 2 {
		clauses += ";broadcast=cudaipc/copy,*"
	}
	t.Setenv("SHUNT_ALGO", clauses)
}

// copied runs f, which calls one collective on every rank, and says how many
// ranks of this process ran it by copies.
func copied(r *rank, f func() error) (n int64, err error) {
	if err := errors.Join(r.Barrier(r), r.sync()); err != nil {
		return 0, err
	}
	before := cudaipctest.Copied.Load()
	if err := errors.Join(r.Barrier(r), r.sync(), f(), r.Barrier(r), r.sync()); err != nil {
		return 0, err
	}
	n = cudaipctest.Copied.Load() - before
	return n, errors.Join(r.Barrier(r), r.sync()) // nobody counts the next call's
}

// symmetric makes memory and registers it as symmetric; done undoes both.
func (r *rank) symmetric(floats int) (p cuda.Ptr, done func(error) error, err error) {
	m, err := r.driver.CreateMemory(r.ctx, r.Rank(), int64(4*floats))
	if err != nil {
		return 0, nil, err
	}
	done = func(err error) error {
		return errors.Join(err, r.Deregister(pointer(m.Address)), r.sync(), r.driver.Unmap(r.ctx, m))
	}
	return m.Address, done, r.RegisterSymmetric(pointer(m.Address), int64(4*floats))
}

// block is what a rank sends: count elements from a place of its ramp on.
func block(rank, from, count int) []float32 { return ramp(rank, from+count)[from:] }

// symmetricCalls are the collectives that run by copies, with what each rank
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
		{"all_gather", func() error { return r.AllGather(pointer(send), pointer(recv), int64(count), plugin.Float32, r) }, gathered},
		{"all_to_all", func() error { return r.AllToAll(pointer(send), pointer(recv), int64(count), plugin.Float32, r) }, exchanged},
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

func repeated(v float32, n int) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = v
	}
	return list
}
