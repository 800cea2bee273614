package buffers

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// After something has changed the keeper looks often, as long messages are slow until all have followed, and soon no
// more: an idle communicator costs next to nothing. What asks the driver has a pace of its own.
func TestPaceOfTheKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Registry{wake: make(chan struct{}, 1)}
		var looks, audits atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		go r.pace(ctx, func() bool { looks.Add(1); return true }, func() { audits.Add(1) })
		during := func(d time.Duration) int64 {
			looks.Store(0)
			audits.Store(0)
			time.Sleep(d) // of the bubble's clock
			synctest.Wait()
			require.InDelta(t, d/keepPeriod, audits.Load(), 1)
			return looks.Load()
		}
		require.InDelta(t, 50, during(50*keepPeriod), 1, "idle")
		r.hurry()
		require.InDelta(t, busyTime/busyPeriod, during(busyTime), 2, "after a change")
		require.InDelta(t, 50, during(50*keepPeriod), 1, "idle again")
		// Calls that miss the same all the time: the first is seen at once, most of the others change nothing.
		r.made = time.Now().Add(-time.Hour)
		looks.Store(0)
		r.notice()
		synctest.Wait()
		require.EqualValues(t, 1, looks.Load())
		for range 50 * keepPeriod / time.Millisecond {
			time.Sleep(time.Millisecond)
			r.notice()
		}
		require.Less(t, looks.Load(), int64(2*50+2))
		require.InDelta(t, 50, during(50*keepPeriod), 2, "after calls that missed")
		for range 1000 { // each look finds a change
			r.hurry()
			synctest.Wait()
		}
		require.InDelta(t, busyTime/busyPeriod, during(busyTime), 2)
		cancel()
	})
}

func TestTheKeeperEndsWhereNothingCanBeDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Registry{wake: make(chan struct{}, 1)}
		looks := 0
		r.pace(t.Context(), func() bool { looks++; return looks < 3 }, func() {})
		require.Equal(t, 3, looks)
	})
}
