package host_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// What graphs captured stays valid until they are destroyed, whatever is deregistered.
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
		g, err := r.graph(func() error { return r.AllGather(pointer(b[0]), pointer(recv), count, plugin.Float32, r) })
		if err := errors.Join(err, r.Deregister(pointer(recv))); err != nil {
			return err
		}
		// Meanwhile every rank withdraws its own export, and sees that the others have.
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
			if err := errors.Join(g.launch(), r.Barrier(r), r.expect(recv, want)); err != nil {
				return fmt.Errorf("replay %d: %w", round, err)
			}
		}
		if err := errors.Join(r.Barrier(r), r.sync(), g.destroy(),
			end(nil)); plugin.CodeOf(err) != plugin.InvalidArgument {
			return fmt.Errorf("deregistering twice gave %w", err)
		}
		return done(eventually("peers' memory to be unmapped", func() bool {
			yes, err := everyone(r, b[1], b[2], host.Collect() == nil && slices.Equal(r.driver.Leaks()[:2], before))
			return yes || err != nil
		}))
	})
}

// Ranges may overlap and be registered twice, as those of programs for NCCL: a call uses the last that holds all of its
// memory, and each ends by itself.
func TestSymmetricRangesOverlap(t *testing.T) {
	const n, count = 2, 100
	const part = n * count
	byCopy(t, n)
	deviceWorld(t, n, func(r *rank) error {
		b, done := r.buffers(count)
		m, err := r.segment(4*mib, 1)
		if err != nil {
			return err
		}
		at := func(floats int) cuda.Ptr { return m.Address() + cuda.Ptr(4*(floats+50*r.Rank())) } // elsewhere on every rank
		ranges := [][2]int{{0, 2 * part}, {part, 2 * part}, {0, part}, {part, 2 * part}, {part / 2, 3 * part}}
		gather := func(from int, want int64) error {
			by, err := copied(r, func() error {
				return r.AllGather(pointer(b[0]), pointer(at(from)), count, plugin.Float32, r)
			})
			if err == nil && by != want {
				err = fmt.Errorf("%d ranks by copies into element %d, want %d", by, from, want)
			}
			return errors.Join(err, r.expect(at(from), append(block(0, 0, count), block(1, 0, count)...)))
		}
		for _, x := range ranges {
			if err := r.RegisterSymmetric(pointer(at(x[0])), int64(4*x[1])); err != nil {
				return err
			}
		}
		// Of the ranges that begin at 0 and part the last ones go first.
		for _, step := range []struct {
			ends      int // where the range begins that ends before these calls
			symmetric map[int]bool
		}{
			{-1, map[int]bool{0: true, part / 2: true, part: true, 2 * part: true, 5 * part / 2: true, 3 * part: false}},
			{part / 2, map[int]bool{0: true, part / 2: true, 2 * part: true, 5 * part / 2: false}},
			{0, map[int]bool{0: true, part / 2: true, part: true}},
			{part, map[int]bool{0: true, 3 * part / 2: true, 2 * part: true}},
			{0, map[int]bool{0: false, part / 2: false, part: true, 2 * part: true}},
			{part, map[int]bool{0: false, part: false, 2 * part: false}},
		} {
			if step.ends >= 0 {
				if err := r.Deregister(pointer(at(step.ends))); err != nil {
					return err
				}
			}
			for _, from := range slices.Sorted(maps.Keys(step.symmetric)) {
				want := int64(0)
				if step.symmetric[from] {
					want = n
				}
				if err := gather(from, want); err != nil {
					return fmt.Errorf("after the end of a range at %d: %w", step.ends, err)
				}
			}
		}
		return done(errors.Join(r.Barrier(r), r.sync(), r.Close(), m.Unmap(0), m.Free()))
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
		err = errors.Join(r.Register(pointer(s.Address()), 6*mib), r.RegisterSymmetric(pointer(s.Address()), 4*mib),
			r.Deregister(pointer(s.Address()+5*mib)))
		if err != nil {
			return err
		}
		recv := s.Address() + mib // over the end of the first piece
		gather := func(v float32) error {
			by, err := copied(r, func() error {
				return errors.Join(r.fill(b[0], count, v+float32(r.Rank())),
					r.AllGather(pointer(b[0]), pointer(recv), count, plugin.Float32, r))
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

// What is deregistered while an operation runs is unmapped once that has ended, though no call follows.
func TestMemoryDeregisteredDuringAnOperationIsUnmapped(t *testing.T) {
	const n, count = 2, 100
	byCopy(t, n)
	deviceWorld(t, n, func(r *rank) error {
		b, done := r.buffers(count)
		word, err := r.driver.AllocHost(r.ctx, 8)
		if err = errors.Join(err, r.settle(), r.meet()); err != nil {
			return err
		}
		before := slices.Clone(r.driver.Leaks()[:2])
		for round := range uint64(3) {
			recv, end, err := r.symmetric(n * count)
			if err != nil {
				return err
			}
			err = errors.Join(r.meet(), r.driver.WaitValue(r.ctx, r.stream, word.Device, round+1),
				r.AllGather(pointer(b[0]), pointer(recv), count, plugin.Float32, r), r.Deregister(pointer(recv)),
				r.driver.WriteValue(r.ctx, 0, word.Device, round+1), r.sync())
			if err != nil {
				return err
			}
			r.all.meet()
			if err := end(nil); plugin.CodeOf(err) != plugin.InvalidArgument {
				return fmt.Errorf("deregistering twice gave %w", err)
			}
		}
		err = eventually("peers' memory to be unmapped", func() bool { return slices.Equal(r.driver.Leaks()[:2], before) })
		r.all.meet()
		return done(errors.Join(err, r.driver.FreeHost(r.ctx, word)))
	})
}
