package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
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

// The smallest all_reduce that goes by copies, with an odd rest, out of place and
// in place.
func TestSymmetricAllReduceByCopies(t *testing.T) {
	const n, count = 2, 16<<20/4 + 5
	t.Setenv("SHUNT_ALGO", "all_reduce=cudaipc/copy,*")
	deviceWorld(t, n, func(r *rank) error {
		recv, end, err := r.symmetric(count)
		if err != nil {
			return err
		}
		b, done := r.buffers(count)
		if err := r.fill(b[0], count, float32(r.Rank()+1)); err != nil {
			return err
		}
		for _, send := range []cuda.Ptr{b[0], recv} { // 1+2, then twice that
			by, err := copied(r, func() error {
				return r.AllReduce(pointer(send), pointer(recv), count, plugin.Float32, plugin.OpSum, r)
			})
			want := float32(3)
			if send == recv {
				want = 6
			}
			if err := errors.Join(err, r.expect(recv, repeated(want, count))); err != nil || by != n {
				return fmt.Errorf("%d ranks by copies, %w", by, err)
			}
		}
		return done(end(nil))
	})
}

func repeated(v float32, n int) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = v
	}
	return list
}

// inGuards makes memory whose middle is registered as symmetric. guards says
// whether what is around it is as it was.
func (r *rank) inGuards(floats, guard int) (p cuda.Ptr, guards func() error, done func() error, err error) {
	m, err := r.driver.CreateMemory(r.ctx, r.Rank(), int64(4*(floats+2*guard)))
	if err != nil {
		return 0, nil, nil, err
	}
	p = m.Address + cuda.Ptr(4*guard)
	fill := r.fill(m.Address, floats+2*guard, 77)
	guards = func() error {
		before, err1 := r.read(m.Address, guard)
		after, err2 := r.read(p+cuda.Ptr(4*floats), guard)
		return errors.Join(err1, err2, equal(before, repeated(77, guard)), equal(after, repeated(77, guard)))
	}
	done = func() error { return r.driver.Unmap(r.ctx, m) }
	return p, guards, done, errors.Join(fill, r.RegisterSymmetric(pointer(p), int64(4*floats)))
}

// verdict is the error of a stream's operations, once they have ended.
func (r *rank) verdict(err error) error {
	if err == nil {
		err = r.sync()
	}
	if err == nil {
		return errors.New("nobody noticed")
	}
	return err
}

// meeting is for ranks whose communicator is aborted: who calls the answer goes on
// when all have.
func meeting(n int) func() error {
	var all sync.WaitGroup
	all.Add(n)
	met := make(chan struct{})
	go func() {
		all.Wait()
		close(met)
	}()
	return func() error {
		all.Done()
		select {
		case <-met:
			return nil
		case <-time.After(20 * time.Second):
			return errors.New("not all ranks came")
		}
	}
}

// Two ranks that receive at different offsets are told so, and no memory outside
// what was registered is touched.
func TestABrokenPromiseIsNamedOnAllRanks(t *testing.T) {
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint("world ", n), func(t *testing.T) {
			byCopy(t, n)
			const count, off = 100, 8
			ended := meeting(n)
			errs := deviceErrors(t, gpus(t, n), nil, func(r *rank) error {
				recv, guards, done, err := r.inGuards(n*count+off, 64)
				if err != nil {
					return err
				}
				b, _ := r.buffers(n * count)
				at := recv
				if r.Rank() == n-1 {
					at += 4 * off
				}
				// The first call is as promised, so that nothing is agreed about the second.
				err = errors.Join(r.AllGather(pointer(b[0]), pointer(recv), count, plugin.Float32, r), r.sync())
				if err != nil {
					return err
				}
				verdict := r.verdict(r.AllGather(pointer(b[0]), pointer(at), count, plugin.Float32, r))
				// Copies behind the check go on once the communicator is aborted.
				err = errors.Join(r.driver.SynchronizeStream(r.ctx, r.stream), ended())
				if err := errors.Join(err, guards(), r.Close(), r.free(b...), done()); err != nil {
					return err
				}
				return verdict
			})
			for rank, err := range errs {
				require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
				require.ErrorContains(t, err, fmt.Sprintf("%d bytes at offset %d of symmetric range 1", 4*n*count, 4*off), "rank %d", rank)
				require.ErrorContains(t, err, fmt.Sprintf("%d bytes at offset 0 of symmetric range 1", 4*n*count), "rank %d", rank)
				require.ErrorContains(t, err, fmt.Sprintf("rank %d", n-1), "rank %d", rank)
			}
		})
	}
}

// A rank that receives into other memory than symmetric calls something else.
func TestARankWithoutSymmetricMemoryIsNamed(t *testing.T) {
	byCopy(t, 2)
	const n, count = 2, 100
	for name, warm := range map[string]bool{"first calls": false, "prepared": true} {
		t.Run(name, func(t *testing.T) {
			ended := meeting(n)
			errs := deviceErrors(t, gpus(t, n), nil, func(r *rank) error {
				recv, guards, done, err := r.inGuards(n*count, 64)
				if err != nil {
					return err
				}
				b, _ := r.buffers(count, n*count)
				gather := func(to cuda.Ptr) error {
					return r.AllGather(pointer(b[0]), pointer(to), count, plugin.Float32, r)
				}
				if warm {
					err = errors.Join(gather(recv), gather(b[1]), r.sync())
				}
				to := recv
				if r.Rank() == 1 {
					to = b[1]
				}
				verdict := r.verdict(errors.Join(err, gather(to)))
				err = errors.Join(r.driver.SynchronizeStream(r.ctx, r.stream), ended())
				if err := errors.Join(err, guards(), r.Close(), r.free(b...), done()); err != nil {
					return err
				}
				return verdict
			})
			for rank, err := range errs {
				require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
				require.ErrorContains(t, err, "ranks disagree", "rank %d", rank)
				require.ErrorContains(t, err, "symmetric", "rank %d", rank)
			}
		})
	}
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
		if err := errors.Join(r.RegisterSymmetric(pointer(second), 4*n*count), r.RegisterSymmetric(pointer(first), 4*n*count)); err != nil {
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
				return fmt.Errorf("%d bytes from the first range on: %d ranks by copies, want %d, %w", test.at-first, by, test.want, err)
			}
			if err := r.expect(test.at, append(block(0, 0, count), block(1, 0, count)...)); err != nil {
				return err
			}
		}
		return done(errors.Join(r.Deregister(pointer(first)), r.Deregister(pointer(second)), r.sync(), r.driver.Unmap(r.ctx, m)))
	})
}

// What graphs captured goes on until they are gone, whatever is deregistered.
func TestGraphsKeepSymmetricMemoryMapped(t *testing.T) {
	const n, count = 3, 200
	byCopy(t, n)
	deviceWorld(t, n, func(r *rank) error {
		b, done := r.buffers(count, 1, 1)
		before := slices.Clone(r.driver.Leaks()[:2])
		recv, end, err := r.symmetric(n * count)
		if err != nil {
			return err
		}
		if err := r.driver.BeginCapture(r.ctx, r.stream); err != nil {
			return err
		}
		err = r.AllGather(pointer(b[0]), pointer(recv), count, plugin.Float32, r)
		graph, ended := r.driver.EndCapture(r.ctx, r.stream)
		if err := errors.Join(err, ended); err != nil {
			return err
		}
		exec, err := r.driver.Instantiate(r.ctx, graph)
		if err := errors.Join(err, r.driver.DestroyGraph(graph), r.Deregister(pointer(recv))); err != nil {
			return err
		}
		// Meanwhile every rank lets go of its own export, and sees that the others have.
		began := time.Now()
		err = eventually("the withdrawal", func() bool {
			yes, err := everyone(r, b[1], b[2], time.Since(began) > 100*time.Millisecond)
			return yes || err != nil
		})
		if err != nil {
			return err
		}
		want := append(append(block(0, 0, count), block(1, 0, count)...), block(2, 0, count)...)
		for round := range 3 {
			if err := errors.Join(r.fill(recv, n*count, -1), r.Barrier(r), r.sync()); err != nil {
				return err
			}
			if err := errors.Join(r.driver.LaunchGraph(r.ctx, exec, r.stream), r.Barrier(r), r.expect(recv, want)); err != nil {
				return fmt.Errorf("replay %d: %w", round, err)
			}
		}
		if err := errors.Join(r.Barrier(r), r.sync(), r.driver.DestroyGraphExec(exec), end(nil)); plugin.CodeOf(err) != plugin.InvalidArgument {
			return fmt.Errorf("deregistering twice gave %w", err)
		}
		return done(eventually("peers' memory to be unmapped", func() bool {
			yes, err := everyone(r, b[1], b[2], host.Collect() == nil && slices.Equal(r.driver.Leaks()[:2], before))
			return yes || err != nil
		}))
	})
}

// What a rank holds of a peer's memory stays until this rank itself has
// deregistered, and the collective is as without symmetric memory afterwards.
func TestDeregisteredMemoryIsNotSymmetric(t *testing.T) {
	const n, count = 2, 100
	byCopy(t, n)
	deviceWorld(t, n, func(r *rank) error {
		b, done := r.buffers(count)
		gather := func(to cuda.Ptr, want int64) error {
			by, err := copied(r, func() error { return r.AllGather(pointer(b[0]), pointer(to), count, plugin.Float32, r) })
			if err == nil && by != want {
				err = fmt.Errorf("%d ranks by copies, want %d", by, want)
			}
			return errors.Join(err, r.expect(to, append(block(0, 0, count), block(1, 0, count)...)))
		}
		for round := range 4 {
			recv, end, err := r.symmetric(n * count)
			if err != nil {
				return err
			}
			if err := errors.Join(gather(recv, n), r.Deregister(pointer(recv)), gather(recv, 0)); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			if err := errors.Join(r.RegisterSymmetric(pointer(recv), 4*n*count), gather(recv, n), end(nil)); err != nil {
				return fmt.Errorf("round %d, again: %w", round, err)
			}
		}
		return done(nil)
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

func TestRegisterSymmetricFailsAlike(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		m, err := r.driver.CreateMemory(r.ctx, r.Rank(), 4000)
		if err != nil {
			return err
		}
		mine := func(yes, no int64) int64 {
			if r.Rank() == 1 {
				return yes
			}
			return no
		}
		for _, test := range []struct {
			name  string
			p     cuda.Ptr
			bytes int64
			code  plugin.Code // OK: as exporting fails
			text  string
		}{
			{"other bytes", m.Address, mine(400, 404), plugin.Mismatch, "rank 0 registers 404 bytes of symmetric memory, rank 1 400"},
			{"too much", m.Address, mine(1<<40, 400), plugin.OK, "rank 1: "},
			{"no bytes", m.Address, mine(0, 400), plugin.InvalidArgument, "rank 1: 0 bytes at"},
			{"negative", m.Address, mine(-1, 400), plugin.InvalidArgument, "rank 1: -1 bytes at"},
			{"null", cuda.Ptr(mine(0, int64(m.Address))), 400, plugin.InvalidArgument, "rank 1: 400 bytes at 0x0"},
			{"wraps", cuda.Ptr(mine(-8, int64(m.Address))), 400, plugin.InvalidArgument, "rank 1: 400 bytes"},
			{"unknown", 4096, 400, plugin.OK, "rank 0: "},
		} {
			err := r.RegisterSymmetric(pointer(test.p), test.bytes)
			if err == nil || (test.code != plugin.OK && plugin.CodeOf(err) != test.code) || !contains(err, test.text) {
				return fmt.Errorf("%s: %w, want %s and %q", test.name, err, test.code, test.text)
			}
		}
		if err := r.RegisterSymmetric(pointer(m.Address+800), 800); err != nil {
			return err
		}
		for at, bytes := range []int64{400: 404, 796: 8, 1200: 4, 1599: 4} {
			if bytes == 0 {
				continue
			}
			other := m.Address + cuda.Ptr(mine(int64(at), 2000)) // on one rank it would do
			if err := r.RegisterSymmetric(pointer(other), bytes); !errors.Is(err, plugin.InvalidArgument) || !contains(err, "rank 1: ") || !contains(err, "overlap symmetric range") {
				return fmt.Errorf("%d bytes at %d gave %w", bytes, at, err)
			}
		}
		return errors.Join(r.RegisterSymmetric(pointer(m.Address+1600), 400), r.RegisterSymmetric(pointer(m.Address+400), 400), r.Close(), r.driver.Unmap(r.ctx, m))
	})
}

// Memory that was freed while it was registered is not written by anybody: the
// rank that uses it is told, and so are the others.
func TestFreedSymmetricMemoryIsNamed(t *testing.T) {
	const n, count = 2, long
	byCopy(t, n)
	ended := meeting(n)
	errs := deviceErrors(t, gpus(t, n), nil, func(r *rank) error {
		m, err := r.driver.CreateMemory(r.ctx, r.Rank(), 4*n*count)
		if err != nil {
			return err
		}
		if err := r.RegisterSymmetric(pointer(m.Address), 4*n*count); err != nil {
			return err
		}
		b, _ := r.buffers(count)
		if r.Rank() == 1 {
			err = r.driver.Unmap(r.ctx, m)
		}
		if err := errors.Join(err, r.Barrier(r), r.sync()); err != nil {
			return err
		}
		verdict := r.verdict(r.AllGather(pointer(b[0]), pointer(m.Address), count, plugin.Float32, r))
		err = errors.Join(r.driver.SynchronizeStream(r.ctx, r.stream), ended(), r.Close(), r.free(b...))
		if r.Rank() == 0 {
			err = errors.Join(err, r.driver.Unmap(r.ctx, m))
		}
		if err != nil {
			return err
		}
		return verdict
	})
	for rank, err := range errs {
		require.ErrorContains(t, err, "all_gather on rank 1: symmetric range 1", "rank %d", rank)
		require.ErrorContains(t, err, "was freed before it was deregistered", "rank %d", rank)
	}
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
			{plugin.AllGather, 8 << 20, "cudaipc/direct"}, {plugin.AllGather, 32 << 20, "cudaipc/copy"},
			{plugin.AllToAll, 8 << 20, "cudaipc/direct"}, {plugin.AllToAll, 128 << 20, "cudaipc/copy"},
			{plugin.AllGather, 1 << 10, "cudaipc/ll"}, {plugin.Broadcast, 512 << 20, "cudaipc/direct"},
			{plugin.Scatter, 64 << 20, "cudaipc/copy"}, {plugin.Scatter, 1 << 10, "cudaipc/ll128"},
			{plugin.AllGatherV, 64 << 20, "cudaipc/ll128"}, {plugin.AllReduce, 512 << 20, "cudaipc/copy"}, {plugin.AllReduce, 64 << 20, "cudaipc/staged"},
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
			if rejected.Name == "cudaipc/copy" && rejected.Reason == "needs receive memory that is registered as symmetric" {
				return nil
			}
		}
		return fmt.Errorf("the explanation does not say what symmetric memory is good for: %v", e)
	})
}

// Memory in pieces is symmetric too, and stays so when other pieces that were
// exported with it are taken away.
func TestSymmetricMemoryInPiecesOutlivesItsNeighbours(t *testing.T) {
	const n, count = 2, long
	byCopy(t, n)
	deviceWorld(t, n, func(r *rank) error {
		s, err := r.segment(8*mib, 3)
		if err != nil {
			return err
		}
		b, done := r.buffers(count, 1, 1)
		err = errors.Join(r.Register(pointer(s.Address()), 6*mib), r.RegisterSymmetric(pointer(s.Address()), 4*mib), r.Deregister(pointer(s.Address()+5*mib)))
		if err != nil {
			return err
		}
		recv := s.Address() + mib // over the end of the first piece
		gather := func(v float32) error {
			by, err := copied(r, func() error {
				return errors.Join(r.fill(b[0], count, v+float32(r.Rank())), r.AllGather(pointer(b[0]), pointer(recv), count, plugin.Float32, r))
			})
			if err == nil && by != n {
				err = fmt.Errorf("%d ranks by copies", by)
			}
			return errors.Join(err, r.expect(recv, append(repeated(v, count), repeated(v+1, count)...)))
		}
		if err := errors.Join(gather(1), s.Unmap(4*mib)); err != nil {
			return err
		}
		// What is exported is looked at once a second.
		began := time.Now()
		for v, last := float32(2), false; !last; v++ {
			if last, err = everyone(r, b[1], b[2], time.Since(began) > 1500*time.Millisecond); err == nil {
				err = gather(v)
			}
			if err != nil {
				return err
			}
		}
		return done(errors.Join(r.Deregister(pointer(s.Address())), r.Close(), s.Free()))
	})
}
