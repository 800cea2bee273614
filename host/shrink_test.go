package host_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// A plugin dies while ranks shrink, and one of them has no time left to try again: the others return too, and do not
// wait for it, which keeps its communicator.
func TestShrinkWhereARankMayNotTryAgain(t *testing.T) {
	var dies atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var returned atomic.Int32
	codes := make([]plugin.Code, 3)
	errs := exchanged(t, manner{
		connect: func(_ context.Context, rank int, _ plugin.Exchange) error {
			if rank == 1 && dies.CompareAndSwap(true, false) {
				return plugin.Errorf(plugin.PluginDied, "its process has ended")
			}
			return nil
		},
		close: func(rank int) { // once all know of the death
			if rank == 0 {
				cancel()
			}
		},
	}, func(c *host.Communicator) error {
		if err := c.Barrier(nil); err != nil {
			return err
		}
		dies.Store(true)
		if err := c.Barrier(nil); err != nil {
			return err
		}
		mine := context.Background()
		if c.Rank() == 0 {
			mine = ctx
		}
		_, err := c.Shrink(mine)
		codes[c.Rank()] = plugin.CodeOf(err)
		returned.Add(1)
		if err := eventually("the other ranks", func() bool { return returned.Load() == 3 }); err != nil {
			return err
		}
		again, err := c.Shrink(context.Background()) // all have counted alike
		if err != nil {
			return err
		}
		return again.Close()
	})
	for rank, err := range errs {
		require.NoError(t, err, "rank %d", rank)
	}
	assert.Equal(t, []plugin.Code{plugin.Aborted, plugin.Aborted, plugin.Aborted}, codes)
}

// What keeps the survivors from a communicator numbers them as in it, and says whose numbers those are.
func TestErrorsOfAShrinkSayWhoseRanksTheyName(t *testing.T) {
	var shrinking atomic.Bool
	errs := exchanged(t, manner{
		connect: func(_ context.Context, rank int, _ plugin.Exchange) error {
			if shrinking.Load() && rank == 1 {
				return plugin.Errorf(plugin.System, "no route")
			}
			return nil
		},
	}, func(c *host.Communicator) error {
		if err := c.Barrier(nil); err != nil {
			return err
		}
		shrinking.Store(true)
		if c.Rank() == 0 {
			return nil // and leaves
		}
		_, err := c.Shrink(t.Context())
		return err
	})
	require.NoError(t, errs[0])
	for rank, err := range errs[1:] {
		require.ErrorIs(t, err, plugin.System, "rank %d", rank+1)
		require.ErrorContains(t, err, "its ranks, from 0 on, are ranks 1, 2 of world", "rank %d", rank+1)
	}
}
