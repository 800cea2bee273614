package host_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Two ranks that receive at different offsets get that error, and no memory outside
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
				return r.broken(r.AllGather(pointer(b[0]), pointer(at), count, plugin.Float32, r), ended, guards, r.Close,
					func() error { return r.free(b...) }, done)
			})
			for rank, err := range errs {
				require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
				require.ErrorContains(t, err, fmt.Sprintf("%d bytes at offset %d of symmetric range 1", 4*n*count, 4*off),
					"rank %d", rank)
				require.ErrorContains(t, err, fmt.Sprintf("%d bytes at offset 0 of symmetric range 1", 4*n*count), "rank %d", rank)
				require.ErrorContains(t, err, fmt.Sprintf("rank %d", n-1), "rank %d", rank)
			}
		})
	}
}

// broken returns the error of a call that broke the guarantee. It waits until the work
// after the call in the stream, which continues when the communicator is aborted, has ended
// on all ranks, and checks that all else went well.
func (r *rank) broken(called error, ended func() error, then ...func() error) error {
	verdict := r.verdict(called)
	err := errors.Join(r.driver.SynchronizeStream(r.ctx, r.stream), ended())
	for _, f := range then {
		err = errors.Join(err, f())
	}
	if err != nil {
		return err
	}
	return verdict
}

// An all_reduce that is in place on one rank alone is an error, as others deliver into receive memory.
func TestInPlaceOnOneRankAloneIsNamed(t *testing.T) {
	t.Setenv("SHUNT_ALGO", "all_reduce=cudaipc/ce_reduce,*")
	const n, count = 3, 1000
	ended := meeting(n)
	errs := deviceErrors(t, gpus(t, n), nil, func(r *rank) error {
		recv, guards, done, err := r.inGuards(count, 64)
		if err != nil {
			return err
		}
		b, _ := r.buffers(count)
		call := func(send cuda.Ptr) error {
			return r.AllReduce(pointer(send), pointer(recv), count, plugin.Float32, plugin.OpSum, r)
		}
		if err := errors.Join(call(b[0]), call(recv), r.sync()); err != nil { // as one, both are fine
			return err
		}
		send := b[0]
		if r.Rank() == 1 {
			send = recv
		}
		return r.broken(call(send), ended, guards, r.Close, func() error { return r.free(b...) }, done)
	})
	for rank, err := range errs {
		require.ErrorIs(t, err, plugin.Mismatch, "rank %d", rank)
		require.ErrorContains(t, err, fmt.Sprintf("%d bytes at offset 0 of symmetric range 1, in place", 4*count), "rank %d",
			rank)
		require.ErrorContains(t, err, fmt.Sprintf("%d bytes at offset 0 of symmetric range 1, out of place", 4*count),
			"rank %d", rank)
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

func TestRegisterSymmetricFailsAlike(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		m, err := r.segment(4*mib, 1) // nothing follows the memory, whatever else is mapped
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
			{"other bytes", m.Address(), mine(400, 404), plugin.Mismatch,
				"rank 0 registers 404 bytes of symmetric memory, rank 1 400"},
			{"too much", m.Address(), mine(4*mib, 400), plugin.OK, "rank 1: "},
			{"no bytes", m.Address(), mine(0, 400), plugin.InvalidArgument, "rank 1: the range has 0 bytes at"},
			{"negative", m.Address(), mine(-1, 400), plugin.InvalidArgument, "rank 1: the range has -1 bytes at"},
			{"null", cuda.Ptr(mine(0, int64(m.Address()))), 400, plugin.InvalidArgument, "rank 1: the range has 400 bytes at 0x0"},
			{"wraps", cuda.Ptr(mine(-8, int64(m.Address()))), 400, plugin.InvalidArgument, "rank 1: the range has 400 bytes"},
			{"unknown", 4096, 400, plugin.OK, "rank 0: "},
		} {
			err := r.RegisterSymmetric(pointer(test.p), test.bytes)
			if err == nil || (test.code != plugin.OK && plugin.CodeOf(err) != test.code) || !contains(err, test.text) {
				return fmt.Errorf("%s: %w, want %s and %q", test.name, err, test.code, test.text)
			}
		}
		if err := r.RegisterSymmetric(pointer(m.Address()+800), 800); err != nil {
			return err
		}
		for at, bytes := range []int64{400: 404, 796: 8, 1200: 4, 1599: 4} {
			if bytes == 0 {
				continue
			}
			other := m.Address() + cuda.Ptr(mine(int64(at), 2000)) // on one rank it would do
			want := fmt.Sprintf("overlaps none on rank 0, but begins %+d bytes from the beginning of range 8 on rank 1", at-800)
			if err := r.RegisterSymmetric(pointer(other), bytes); !errors.Is(err, plugin.Unsupported) || !contains(err, want) {
				return fmt.Errorf("%d bytes at %d gave %w, want %s", bytes, at, err, want)
			}
		}
		return errors.Join(r.RegisterSymmetric(pointer(m.Address()+1600), 400),
			r.RegisterSymmetric(pointer(m.Address()+400), 400), r.Close(), m.Unmap(0), m.Free())
	})
}

// Memory that was freed while it was registered is not written by any rank: the one that uses it gets an error, and so
// do the others.
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
