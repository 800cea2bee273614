package host_test

import (
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// What a rank stores at the address of a peer's memory is there, in registered memory and in windows.
func TestPeerAddressReachesThePeersMemory(t *testing.T) {
	const n, count = 3, 64
	deviceWorld(t, n, func(r *rank) error {
		at, end, err := r.symmetric(n * count)
		if err != nil {
			return err
		}
		w, err := r.NewWindow(t.Context(), n*count*4)
		if err != nil {
			return err
		}
		mine, done := r.buffers(count)
		for _, base := range []cuda.Ptr{at, cuda.Ptr(uintptr(w.Local()))} {
			err = errors.Join(err, r.fill(base, n*count, -1), r.meet())
			for p := range n {
				to, failed := r.PeerAddress(pointer(base+cuda.Ptr(4*r.Rank()*count)), p)
				if err = errors.Join(err, failed); err != nil {
					return err
				}
				err = r.driver.Copy(r.ctx, cuda.Ptr(uintptr(to)), mine[0], 4*count, r.stream)
			}
			err = errors.Join(err, r.sync(), r.Barrier(r))
			for p := range n {
				err = errors.Join(err, r.expect(base+cuda.Ptr(4*p*count), ramp(p, count)))
			}
		}
		own, failed := r.PeerAddress(pointer(at), r.Rank())
		if own != pointer(at) {
			failed = errors.Join(failed, fmt.Errorf("its own memory at %p is said to be at %p", pointer(at), own))
		}
		return done(errors.Join(err, failed, r.meet(), w.Close(), end(nil)))
	})
}

// Windows in registered memory work like others, some ranks have them alone, and signals of two of them do not mix.
func TestWindowsInRegisteredMemory(t *testing.T) {
	const n, count = 3, 64
	deviceWorld(t, n, func(r *rank) error {
		header := r.WindowHeader()
		bytes := header + count*4
		p, end, err := r.symmetric(2 * int(bytes) / 4)
		if err = errors.Join(err, r.fill(p, 2*int(bytes)/4, 0), r.meet()); err != nil {
			return err
		}
		first, err := r.NewWindowAt(pointer(p), bytes)
		if err != nil {
			return err
		}
		if first.Bytes() != count*4 || first.Local() != pointer(p+cuda.Ptr(header)) {
			return fmt.Errorf("%d bytes at %p", first.Bytes(), first.Local())
		}
		right, left := (r.Rank()+1)%n, (r.Rank()+n-1)%n
		mine, done := r.buffers(count, count)
		for range 3 {
			err = errors.Join(first.On(r).Put(right, 0, pointer(mine[0]), 4*count), first.On(r).Signal(right),
				first.On(r).Wait(left, 1), first.On(r).Get(right, 0, pointer(mine[1]), 4*count),
				r.expect(cuda.Ptr(uintptr(first.Local())), ramp(left, count)), r.expect(mine[1], ramp(r.Rank(), count)),
				r.meet(), r.fill(cuda.Ptr(uintptr(first.Local())), count, 0), r.meet())
			if err != nil {
				return err
			}
		}
		var second *host.Window
		if r.Rank() < 2 { // rank 0 signals 1 there, which the first must not count
			if second, err = r.NewWindowAt(pointer(p+cuda.Ptr(bytes)), bytes); err != nil {
				return err
			}
			if r.Rank() == 0 {
				err = errors.Join(second.On(r).Signal(1), r.sync())
			}
		}
		err = errors.Join(err, r.meet(), first.On(r).Signal(right))
		if r.Rank() == 1 {
			err = errors.Join(err, second.On(r).Wait(0, 1))
		}
		err = errors.Join(err, first.On(r).Wait(left, 1), r.meet())
		another, failed := r.NewWindow(t.Context(), 8) // which all ranks have in one place all the same
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		if err = r.Deregister(pointer(p)); plugin.CodeOf(err) != plugin.InvalidArgument || !contains(err, "is open") {
			return fmt.Errorf("deregistering the memory of an open window: %w", err)
		}
		err = errors.Join(another.On(r).Put(right, 0, pointer(mine[0]), 8), r.meet(), another.Close(), first.Close())
		if second != nil {
			err = errors.Join(err, second.Close())
		}
		return done(end(err))
	})
}

// Deregister undoes the last registration at an address, whatever is open in an earlier one there.
func TestWindowsKeepNoRangeButTheirOwn(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		header := r.WindowHeader()
		p, end, err := r.symmetric(int(header) / 2)
		if err != nil {
			return err
		}
		open, err := r.NewWindowAt(pointer(p), 2*header)
		if err = errors.Join(err, r.RegisterSymmetric(pointer(p), header)); err != nil {
			return err
		}
		later, err := r.NewWindowAt(pointer(p), header)
		if err != nil {
			return err
		}
		kept := func() error {
			if err := r.Deregister(pointer(p)); plugin.CodeOf(err) != plugin.InvalidArgument || !contains(err, "is open") {
				return fmt.Errorf("deregistering the memory of an open window: %w", err)
			}
			return nil
		}
		err = errors.Join(kept(), later.Close(), r.Deregister(pointer(p)), kept(), r.meet(), open.Close())
		return end(err)
	})
}

func TestWindowsInRegisteredMemoryAreRefused(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		header := r.WindowHeader()
		p, end, err := r.symmetric(int(header) / 2) // room for two headers
		if err != nil {
			return err
		}
		unregistered, done := r.buffers(int(header))
		for _, test := range []struct {
			p     unsafe.Pointer
			bytes int64
			text  string
		}{
			{nil, header, "are not all in one range"},
			{pointer(unregistered[0]), header, "are not all in one range"},
			{pointer(p), 2*header + 1, "are not all in one range"},
			{pointer(p + cuda.Ptr(header) + 64), header, "are not all in one range"},
			{pointer(p), header - 1, "want 4096 to"},
			{pointer(p), -1, "want 4096 to"},
			{pointer(p), 1<<63 - 1, "want 4096 to"},
			{pointer(p + 4), header, "at a multiple of 64"},
		} {
			_, err := r.NewWindowAt(test.p, test.bytes)
			if plugin.CodeOf(err) != plugin.InvalidArgument || !contains(err, test.text) {
				return fmt.Errorf("%d bytes at %p: want %q: %w", test.bytes, test.p, test.text, err)
			}
		}
		for _, test := range []struct {
			p    unsafe.Pointer
			peer int
			text string
		}{
			{pointer(p), -1, "peer -1 is not a rank of a world of 2"}, {pointer(p), 2, "peer 2 is not a rank of a world of 2"},
			{nil, 0, "is neither in memory"}, {pointer(unregistered[0]), 1, "is neither in memory"},
			{pointer(p + cuda.Ptr(2*header)), 1, "is neither in memory"},
		} {
			_, err := r.PeerAddress(test.p, test.peer)
			if plugin.CodeOf(err) != plugin.InvalidArgument || !contains(err, test.text) {
				return fmt.Errorf("%p of rank %d: want %q: %w", test.p, test.peer, test.text, err)
			}
		}
		w, err := r.NewWindowAt(pointer(p), header)
		if err == nil {
			err = errors.Join(r.meet(), w.Close(), w.Close())
		}
		return done(end(err))
	})
	world(t, 2, func(c *host.Communicator) error { // host memory
		x := make([]float32, 4096)
		_, err := c.NewWindowAt(at(x), 8192)
		_, err2 := c.PeerAddress(at(x), 0)
		if plugin.CodeOf(err) != plugin.InvalidArgument || plugin.CodeOf(err2) != plugin.InvalidArgument {
			return fmt.Errorf("on host memory: %w, %w", err, err2)
		}
		return nil
	})
}

// The words that peers write have to be aligned on every rank: no rank makes a window that is so on its own GPU alone.
func TestWindowsInMemoryOfAnotherAlignmentAreRefused(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		header := int(r.WindowHeader())
		memory, done := r.buffers(header)
		p := memory[0] + cuda.Ptr(4*r.Rank())
		if err := r.RegisterSymmetric(pointer(p), int64(2*header)); err != nil {
			return err
		}
		_, err := r.NewWindowAt(pointer(memory[0]+cuda.Ptr(64*r.Rank())), int64(header))
		if plugin.CodeOf(err) != plugin.InvalidArgument ||
			!contains(err, fmt.Sprintf("what rank %d has for 0x", 1-r.Rank())) {
			return fmt.Errorf("its own address is aligned: %w", err)
		}
		return done(errors.Join(r.meet(), r.Deregister(pointer(p))))
	})
}

// One rank may make a window in registered memory alone, also beside a transport that exchanges bytes before plans.
func TestOneRankMakesAWindowInRegisteredMemory(t *testing.T) {
	withNCCL(t)
	adjust := func(rank int, o *host.Options) {
		both("")(rank, o)
		o.Timeout = 5 * time.Second
	}
	require.NoError(t, errors.Join(deviceErrors(t, gpus(t, 2), adjust, func(r *rank) error {
		header := r.WindowHeader()
		p, end, err := r.symmetric(int(header) / 4)
		if err == nil && r.Rank() == 1 {
			var w *host.Window
			if w, err = r.NewWindowAt(pointer(p), header); err == nil {
				err = w.Close()
			}
		}
		return end(errors.Join(err, r.meet()))
	})...))
}
