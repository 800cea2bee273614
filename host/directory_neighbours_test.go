package host_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
)

// awaitExports waits until the exports of a segment of so many bytes, by their lengths, are as wanted.
func (r *rank) awaitExports(s *cudatest.Segment, bytes int64, wanted func(bytes int64) bool) error {
	return eventually("the exports of memory that is gone to go", func() bool {
		for _, e := range host.Exports(r.Communicator) {
			if at := e[0] - int64(s.Address()); at >= 0 && at < bytes && !wanted(e[1]) {
				return false
			}
		}
		return true
	})
}

// What is registered in a segment outlives the pieces beside it, also where peers had mapped them together: an
// allocator unmaps those when nothing of its own lies in them, and the registration's user has no say in it.
func TestRegisteredMemoryOutlivesThePiecesBesideIt(t *testing.T) {
	oneDirect(t)
	const n, count, longer = 2, long, 3 * long / 2
	for _, used := range []bool{true, false} {
		t.Run(fmt.Sprintf("used %v", used), func(t *testing.T) {
			deviceWorld(t, n, func(r *rank) error {
				s, err := r.segment(8*mib, 3)
				if err != nil {
					return err
				}
				b, done := r.buffers(longer)
				if err := directly(r, b[0], s.Address()+3*mib/2, longer); err != nil { // in all three pieces
					return err
				}
				recv := s.Address() + mib // in the first two
				if err := r.Register(pointer(recv), n*count*4); err != nil {
					return err
				}
				err = errors.Join(s.Unmap(4*mib), r.awaitExports(s, 8*mib, func(bytes int64) bool { return bytes <= 4*mib }),
					r.meet())
				if err == nil && used {
					err = gatherDirectly(r, b[0], recv, count, 3)
				}
				if err = errors.Join(err, r.Deregister(pointer(recv))); err != nil {
					return err
				}
				return done(errors.Join(r.Communicator.Close(), s.Free()))
			})
		})
	}
}

// Each registration is undone by its own address, whichever others hold that, too.
func TestRegistrationsThatOverlapAreUndoneApart(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	deviceWorld(t, n, func(r *rank) error {
		s, err := r.segment(4*mib, 2)
		if err != nil {
			return err
		}
		b, done := r.buffers(count)
		across, first := s.Address()+mib, s.Address() // both are in the first piece, one reaches into the second
		if err := errors.Join(r.Register(pointer(across), 2*mib), r.Register(pointer(first), 2*mib)); err != nil {
			return err
		}
		err = errors.Join(r.Deregister(pointer(across)), s.Unmap(2*mib),
			r.awaitExports(s, 4*mib, func(bytes int64) bool { return bytes == 2*mib }), r.meet())
		if err != nil {
			return err
		}
		if err := gatherDirectly(r, b[0], first, count, 3); err != nil {
			return err
		}
		if err := r.Deregister(pointer(first)); err != nil {
			return err
		}
		return done(errors.Join(r.Communicator.Close(), s.Free()))
	})
}
