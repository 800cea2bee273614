package host_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// reduced calls all_reduce of so many elements on fresh memory, and checks the sum.
func (r *rank) reduced(c *host.Communicator, count int) error {
	send := make([]float32, count)
	for i := range send {
		send[i] = float32(r.Rank() + i%7)
	}
	p, err := r.floats(send)
	if err != nil {
		return err
	}
	if err := errors.Join(c.AllReduce(pointer(p), pointer(p), int64(count), plugin.Float32, plugin.OpSum, r),
		c.Synchronize(r)); err != nil {
		return errors.Join(err, r.free(p))
	}
	got, err := r.read(p, count)
	n := c.World()
	for i, v := range got {
		if want := float32(n*(n-1)/2 + n*(i%7)); v != want {
			err = errors.Join(err, fmt.Errorf("element %d of %d is %v, want %v", i, count, v, want))
			break
		}
	}
	return errors.Join(err, r.free(p))
}

// DeviceBytes of a closed communicator is 0.
func TestDeviceBytesOnceClosed(t *testing.T) {
	deviceWorld(t, 2, func(r *rank) error {
		before := r.DeviceBytes()
		err := r.Close()
		if after := r.DeviceBytes(); before <= 0 || after != 0 {
			return fmt.Errorf("%d bytes, %d once closed: %w", before, after, err)
		}
		return err
	})
	world(t, 1, func(c *host.Communicator) error {
		none := []int64{0}
		return errors.Join(equal([]int64{c.DeviceBytes()}, none), c.Close(), equal([]int64{c.DeviceBytes()}, none))
	})
}

// A communicator holds what its calls need: many groups of which each calls little take little.
func TestDeviceMemoryIsMadeWhenItIsNeeded(t *testing.T) {
	const n = 4
	deviceWorld(t, n, func(r *rank) error {
		before := r.DeviceBytes()
		if before > 8<<20 {
			return fmt.Errorf("a new communicator of %d holds %d bytes, want at most 8 MiB", n, before)
		}
		if err := errors.Join(r.reduced(r.Communicator, 2), r.meet()); err != nil {
			return err
		}
		if held := r.DeviceBytes(); held != before {
			return fmt.Errorf("it holds %d bytes after a short call, %d before", held, before)
		}
		if err := r.reduced(r.Communicator, 1<<15); err != nil { // in lines
			return err
		}
		lines := r.DeviceBytes()
		if lines <= before {
			return fmt.Errorf("it holds %d bytes after a longer call, %d before", lines, before)
		}
		if err := errors.Join(r.reduced(r.Communicator, 1<<15), r.meet(), r.reduced(r.Communicator, 1<<14)); err != nil {
			return err
		}
		if held := r.DeviceBytes(); held != lines {
			return fmt.Errorf("it holds %d bytes after the same again, %d before", held, lines)
		}
		return nil
	})
}

// Two ranks that exchange messages need nothing of a third one's memory, and it makes none.
func TestDeferredMemoryOfMessagesIsTheirRanks(t *testing.T) {
	deviceWorld(t, 3, func(r *rank) error {
		b, done := r.buffers(1000)
		before := r.DeviceBytes()
		err := r.meet() // as a rank's memory may be made for a peer before it calls
		switch r.Rank() {
		case 0:
			err = errors.Join(err, r.Send(pointer(b[0]), 1000, plugin.Float32, 1, r))
		case 1:
			err = errors.Join(err, r.Recv(pointer(b[0]), 1000, plugin.Float32, 0, r))
		}
		err = errors.Join(err, r.sync(), r.meet())
		if grown := r.DeviceBytes() > before; grown != (r.Rank() < 2) {
			err = errors.Join(err, fmt.Errorf("rank %d grew: %v", r.Rank(), grown))
		}
		return done(err)
	})
}

// A rank's memory is made when a peer needs it first, though its own callers are elsewhere: here the other rank waits
// for its stream before this one calls at all, and messages that no call has asked for yet are taken.
func TestDeferredMemoryOfARankThatHasNotCalledYet(t *testing.T) {
	sent := make(chan struct{})
	deviceWorld(t, 2, func(r *rank) error {
		b, done := r.buffers(100)
		if r.Rank() == 0 {
			err := errors.Join(r.Send(pointer(b[0]), 100, plugin.Float32, 1, r), r.sync())
			close(sent)
			return done(err)
		}
		<-sent
		return done(errors.Join(r.Recv(pointer(b[0]), 100, plugin.Float32, 0, r), r.sync()))
	})
}

// The first call that needs more memory may be one that is captured.
func TestDeferredMemoryIsMadeWithinACapture(t *testing.T) {
	const count = 1 << 15
	deviceWorld(t, 2, func(r *rank) error {
		b, done := r.buffers(count, count)
		g, err := r.graph(func() error {
			return r.AllReduce(pointer(b[0]), pointer(b[1]), count, plugin.Float32, plugin.OpSum, r)
		})
		if err != nil {
			return err
		}
		for range 3 {
			err = errors.Join(err, g.launch())
		}
		return done(errors.Join(err, r.sync(), r.reduced(r.Communicator, count), g.destroy()))
	})
}

// What cannot be made is the call's error on every rank, and names the rank and the reason. Nothing is left of it.
func TestDeferredMemoryThatCannotBeMade(t *testing.T) {
	for _, call := range []string{"CreateMemory 0", "ExportMemory 0", "MapChunk 0", "MapChunk 1", "MapChunk 2", "Copy 0",
		"SynchronizeStream 0"} { // of MapChunk the later ones map what peers have made
		t.Run(call, func(t *testing.T) {
			method, after := "", 0
			_, err := fmt.Sscan(call, &method, &after)
			require.NoError(t, err)
			var errs []error
			for range 20 { // what runs beside the calls uses the driver, too, and takes the failure now and then
				drivers := gpus(t, 3)
				errs = deviceErrors(t, drivers, nil, func(r *rank) error {
					if err := errors.Join(r.reduced(r.Communicator, 2), r.meet()); err != nil {
						return err
					}
					if r.Rank() == 1 {
						drivers[1].Fail(method, after, cuda.OutOfMemory)
					}
					r.all.meet() // a peer that is ahead asks rank 1 for memory
					b, done := r.buffers(1 << 15)
					err := errors.Join(r.AllReduce(pointer(b[0]), pointer(b[0]), 1<<15, plugin.Float32, plugin.OpSum, r), r.sync())
					return done(err)
				})
				if errors.Join(errs...) != nil {
					break
				}
			}
			for rank, err := range errs {
				require.ErrorIs(t, err, plugin.OutOfMemory, "rank %d", rank)
				require.ErrorContains(t, err, "making ", "rank %d", rank)
				// What a peer asks rank 1 for fails for the peer.
				require.Regexp(t, `on rank 1 \(region|\(region \d+ of rank 1\): that process could not make it`, err.Error(),
					"rank %d", rank)
			}
		})
	}
}

// A rank that has ended before it was asked for memory: ranks that wait for it return the usual error, and soon.
func TestDeferredMemoryOfARankThatHasClosed(t *testing.T) {
	began := time.Now()
	errs := deviceErrors(t, gpus(t, 2), nil, func(r *rank) error {
		if err := errors.Join(r.reduced(r.Communicator, 2), r.meet()); err != nil || r.Rank() == 1 {
			return errors.Join(err, r.Close())
		}
		return r.reduced(r.Communicator, 1<<15)
	})
	require.NoError(t, errs[1])
	require.ErrorIs(t, errs[0], plugin.Closed)
	require.ErrorContains(t, errs[0], "has closed the communicator while rank 0 waits for it")
	require.Less(t, time.Since(began), 10*time.Second)
}
