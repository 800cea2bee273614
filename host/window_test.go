package host_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestWindowsOfDifferentSizesAreRefused(t *testing.T) {
	world(t, 3, func(c *host.Communicator) error {
		_, err := c.NewWindow(context.Background(), int64(64+c.Rank()/2))
		if !errors.Is(err, plugin.Mismatch) {
			return fmt.Errorf("%w, want a mismatch", err)
		}
		const want = "rank 0 makes a window of 64 bytes, rank 2 one of 65"
		if text := fmt.Sprintf("new_window on rank %d: ranks disagree: %s", c.Rank(), want); err.Error() != text {
			return fmt.Errorf("%w, want %s", err, text)
		}
		w, err := c.NewWindow(context.Background(), 64)
		if err != nil {
			return err
		}
		return errors.Join(w.Signal((c.Rank()+1)%3), w.Wait((c.Rank()+2)%3, 1), c.Barrier(nil), w.Close())
	})
}

func TestWaitForLessThanNothing(t *testing.T) {
	world(t, 1, func(c *host.Communicator) error {
		w, err := c.NewWindow(context.Background(), 8)
		if err != nil {
			return err
		}
		err = w.Wait(0, -1)
		require.ErrorIs(t, err, plugin.InvalidArgument)
		require.ErrorContains(t, err, "wait on rank 0: number of signals -1 is negative")
		_, err = c.NewWindow(context.Background(), 1<<50)
		require.ErrorContains(t, err, "1125899906842624 bytes; want 0 to 70368744177664")
		return w.Close()
	})
}

// The memory of a window goes with it or with its communicator, and Local has no address of it then.
func TestLocalIsNilOnceTheMemoryIsGone(t *testing.T) {
	for what, closes := range map[string]func(c *host.Communicator, w *host.Window) error{
		"window":       func(_ *host.Communicator, w *host.Window) error { return w.Close() },
		"communicator": func(c *host.Communicator, _ *host.Window) error { return c.Close() },
	} {
		world(t, 1, func(c *host.Communicator) error {
			w, err := c.NewWindow(t.Context(), 64)
			if err != nil {
				return err
			}
			other, err := c.NewWindow(t.Context(), 8)
			if err != nil {
				return err
			}
			require.EqualValues(t, 64, w.Bytes(), what)
			unsafe.Slice((*byte)(w.Local()), 64)[63] = 1
			if err := closes(c, w); err != nil {
				return err
			}
			require.Zero(t, w.Bytes(), what)
			require.Nil(t, w.Local(), what)
			if what == "window" {
				unsafe.Slice((*byte)(other.Local()), other.Bytes())[7] = 1
			}
			return nil
		})
	}
}

// A window that is closed again takes nothing from the one that has got its place.
func TestWindowsAreClosedOnce(t *testing.T) {
	world(t, 2, func(c *host.Communicator) error {
		var windows []*host.Window
		for range 3 {
			w, err := c.NewWindow(context.Background(), 64)
			if err != nil {
				return err
			}
			windows = append(windows, w)
			if err := windows[0].Close(); err != nil {
				return err
			}
		}
		peer := 1 - c.Rank()
		return errors.Join(windows[1].Signal(peer), windows[1].Wait(peer, 1), c.Barrier(nil), windows[2].Close(),
			windows[1].Close())
	})
}

// Closing is local: a rank may have closed what another has open when the next window is made, and in another order.
func TestWindowsAreMadeWhileOthersAreClosedOnSomeRanks(t *testing.T) {
	world(t, 3, func(c *host.Communicator) error {
		var old []*host.Window
		for range 3 {
			w, err := c.NewWindow(context.Background(), 64)
			if err != nil {
				return err
			}
			old = append(old, w)
		}
		if err := errors.Join(c.Barrier(nil), old[c.Rank()].Close()); err != nil {
			return err
		}
		var made []*host.Window
		for range 2 {
			w, err := c.NewWindow(context.Background(), 64)
			if err != nil {
				return err
			}
			made = append(made, w)
			x := int32(100*len(made) + c.Rank())
			right, left := (c.Rank()+1)%3, (c.Rank()+2)%3
			if err := errors.Join(w.Put(right, 60, at([]int32{x}), 4), w.Signal(right), w.Wait(left, 1)); err != nil {
				return err
			}
			if got := *(*int32)(unsafe.Add(w.Local(), 60)); got != int32(100*len(made)+left) {
				return fmt.Errorf("rank %d has %d in its window, want %d", c.Rank(), got, 100*len(made)+left)
			}
			for _, w := range old { // once each; the second time it does nothing
				err = errors.Join(err, w.Close())
			}
			if err != nil {
				return err
			}
		}
		return errors.Join(c.Barrier(nil), made[1].Close(), made[0].Close())
	})
}

// Windows of a communicator that has failed may be closed by several goroutines, as may the communicator.
func TestWindowsAreClosedTogetherAfterAFailure(t *testing.T) {
	world(t, 1, func(c *host.Communicator) error {
		closes := []func() error{c.Close}
		for range 32 {
			w, err := c.NewWindow(context.Background(), 64)
			if err != nil {
				return err
			}
			closes = append(closes, w.Close, w.Close)
		}
		c.Abort("enough")
		errs := make([]error, len(closes))
		var all sync.WaitGroup
		for i, end := range closes {
			all.Go(func() { errs[i] = end() })
		}
		all.Wait()
		return errors.Join(errs...)
	})
}
