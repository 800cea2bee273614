package host_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/plugin"
)

const mib = 1 << 20

// segment reserves addresses on a rank's GPU and maps pieces of 2 MiB at their
// beginning.
func (r *rank) segment(bytes int64, pieces int) (*cudatest.Segment, error) {
	s, err := r.driver.Reserve(r.ctx, r.Rank(), bytes)
	for i := 0; err == nil && i < pieces; i++ {
		err = s.Map(int64(i)*2*mib, 2*mib)
	}
	return s, err
}

// acrossPieces returns a segment of three pieces with receive memory for two blocks of
// count elements, which is registered: it begins in the middle of the first piece.
func (r *rank) acrossPieces(count int64) (s *cudatest.Segment, recv cuda.Ptr, err error) {
	if s, err = r.segment(8*mib, 3); err != nil {
		return nil, 0, err
	}
	recv = s.Address() + mib
	return s, recv, r.Register(pointer(recv), 2*count*4)
}

// allocations returns the number of mappings on a rank's GPU.
func (r *rank) allocations() (n int) {
	_, _ = fmt.Sscanf(r.driver.Leaks()[0], "%d allocations", &n)
	return n
}

// directly gathers until it goes directly.
func directly(r *rank, send, recv cuda.Ptr, count int) error {
	for round := range 500 {
		if direct, err := gatherLong(r, send, recv, count, float32(round)); err != nil || direct == int64(r.World()) {
			return err
		}
	}
	return errors.New("the buffers were never mapped")
}

// descriptors counts the open descriptors of memory.
func descriptors() (int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	n := 0
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(target, "/memfd:") {
			n++
		}
	}
	return n, err
}

// A block of each rank lies in a piece of its own, so what is written where
// peers have mapped something else is missed.
func TestRegisterServesMemoryInPieces(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	deviceWorld(t, n, func(r *rank) error {
		s, recv, err := r.acrossPieces(count)
		if err != nil {
			return err
		}
		b, done := r.buffers(count)
		if err := gatherDirectly(r, b[0], recv, count, 3); err != nil {
			return err
		}
		if err := r.Register(pointer(recv+2*mib), 8*mib); !errors.Is(err, plugin.Unsupported) &&
			!errors.Is(err, plugin.InvalidArgument) {
			return fmt.Errorf("registering what is not mapped gave %w", err)
		}
		if err := r.Deregister(pointer(recv)); err != nil {
			return err
		}
		return done(errors.Join(r.Communicator.Close(), s.Free()))
	})
}

func TestDirectoryTakesUpMemoryInPieces(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	deviceWorld(t, n, func(r *rank) error {
		send, err := r.segment(4*mib, 2)
		if err != nil {
			return err
		}
		recv, err := r.segment(4*mib, 2)
		if err != nil {
			return err
		}
		err = directly(r, send.Address()+3*mib/2, recv.Address()+mib, count)
		return errors.Join(err, r.Communicator.Close(), send.Free(), recv.Free())
	})
}

// A segment grows: a buffer in old and new pieces is reached in one stretch,
// and the exports that lie in a longer one go, at the peers too.
func TestSegmentsThatGrowAreExportedAnew(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	deviceWorld(t, n, func(r *rank) error {
		s, err := r.segment(16*mib, 1)
		if err != nil {
			return err
		}
		b, done := r.buffers(count, 1, 1)
		if err := errors.Join(r.settle(), r.meet()); err != nil {
			return err
		}
		before := r.allocations()
		if err := directly(r, b[0], s.Address(), count); err != nil {
			return err
		}
		for i := 1; i < 4; i++ {
			if err := s.Map(int64(i)*2*mib, 2*mib); err != nil {
				return err
			}
			if err := directly(r, b[0], s.Address()+cuda.Ptr(2*i-1)*mib, count); err != nil {
				return fmt.Errorf("with %d pieces: %w", i+1, err)
			}
		}
		if err := r.Register(pointer(s.Address()), 8*mib); err != nil {
			return err
		}
		if err := directly(r, b[0], s.Address(), count); err != nil {
			return err
		}
		// What is more than before: three pieces of its own, the peer's four, and the
		// send memory of both.
		err = eventually("the exports that were replaced to go", func() bool {
			yes, err := everyone(r, b[1], b[2], r.allocations() <= before+3+4+1)
			return yes || err != nil
		})
		return done(errors.Join(err, r.Communicator.Close(), s.Free()))
	})
}

// A segment shrinks and grows again: a piece at the same address is other
// memory, and what peers write must arrive there.
func TestPiecesThatAreMappedAnewAreNoticed(t *testing.T) {
	oneDirect(t)
	const n, count = 2, long
	for piece := range 2 {
		deviceWorld(t, n, func(r *rank) error {
			s, recv, err := r.acrossPieces(count)
			if err != nil {
				return err
			}
			b, done := r.buffers(count)
			if err := gatherDirectly(r, b[0], recv, count, 3); err != nil {
				return err
			}
			if err := errors.Join(s.Unmap(int64(piece)*2*mib), s.Map(int64(piece)*2*mib, 2*mib)); err != nil {
				return err
			}
			for round := range 3 {
				if _, err := gatherLong(r, b[0], recv, count, float32(10+round)); err != nil {
					return fmt.Errorf("piece %d: %w", piece, err)
				}
			}
			err = directly(r, b[0], recv, count) // anew
			return done(errors.Join(err, r.Communicator.Close(), s.Free()))
		})
	}
}

// More pieces than descriptors fit into a message; once peers have mapped them
// no descriptor is left open.
func TestManyPieces(t *testing.T) {
	oneDirect(t)
	const n, count, pieces = 2, long, 150
	deviceWorld(t, n, func(r *rank) error {
		s, err := r.segment(pieces*2*mib, pieces)
		if err != nil {
			return err
		}
		b, done := r.buffers(count, 1, 1)
		if err := errors.Join(r.settle(), r.meet()); err != nil {
			return err
		}
		before, err := descriptors()
		if err != nil {
			return err
		}
		if err := r.Register(pointer(s.Address()), pieces*2*mib); err != nil {
			return err
		}
		if err := gatherDirectly(r, b[0], s.Address()+(2*pieces-3)*mib, count, 3); err != nil {
			return err
		}
		// A driver in memory keeps a descriptor of each piece that it maps: those of
		// the peer here, and those of this rank there.
		err = eventually("the descriptors to be closed", func() bool {
			now, err := descriptors()
			yes, failed := everyone(r, b[1], b[2], now <= before+n*pieces)
			return err != nil || failed != nil || yes
		})
		return done(errors.Join(err, r.Communicator.Close(), s.Free()))
	})
}

// Without descriptors memory in pieces is staged, and the error says why.
func TestPiecesWithoutDescriptors(t *testing.T) {
	oneDirect(t)
	const n, count, pieces = 2, long, 60
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	deviceWorld(t, n, func(r *rank) error {
		s, err := r.segment(pieces*2*mib, pieces)
		if err != nil {
			return err
		}
		b, done := r.buffers(count)
		if err := r.meet(); err != nil {
			return err
		}
		if r.Rank() == 0 {
			open, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				return err
			}
			few := limit
			few.Cur = uint64(len(open) + 30)
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
				return err
			}
		}
		if err := r.meet(); err != nil {
			return err
		}
		err = r.Register(pointer(s.Address()), pieces*2*mib)
		if err == nil || !contains(err, "memory in pieces, of which each needs a descriptor") &&
			!contains(err, "descriptors of 60 pieces") && !contains(err, "cannot map") {
			return fmt.Errorf("registering without descriptors gave %w", err)
		}
		if _, err := gatherLong(r, b[0], s.Address()+mib, count, 3); err != nil {
			return err
		}
		if err := r.meet(); err != nil {
			return err
		}
		if r.Rank() == 0 {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
				return err
			}
		}
		if err := r.meet(); err != nil {
			return err
		}
		if err := r.Register(pointer(s.Address()), pieces*2*mib); err != nil {
			return err
		}
		if err := gatherDirectly(r, b[0], s.Address()+mib, count, 5); err != nil {
			return err
		}
		return done(errors.Join(r.Communicator.Close(), s.Free()))
	})
}
