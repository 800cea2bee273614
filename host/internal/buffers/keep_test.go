package buffers

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
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

// freeing is a driver on which one piece of memory is freed at a time.
type freeing struct {
	cuda.Driver
	freed atomic.Uint64
}

func (d *freeing) StillMapped(_ cuda.Context, pieces []cuda.Ptr, _ []uint64) (bool, error) {
	return !slices.Contains(pieces, cuda.Ptr(d.freed.Load())), nil
}

// Memory that its owner has freed, and replays that reach for memory mapped anew, wait for the next question to the
// driver: 0.2 s at most, however much is exported.
func TestFreedMemoryIsWithdrawnWithinAFifthOfASecond(t *testing.T) {
	for _, pieces := range []int{1, 10, 200} {
		t.Run(fmt.Sprint(pieces), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := aRegistry(t)
				driver := &freeing{Driver: r.gpu.Driver}
				r.gpu.Driver = driver
				for range plugin.DirectoryExports {
					e := &r.exports[r.export(t)]
					for i := 1; i < pieces; i++ {
						e.pieces, e.ids = append(e.pieces, e.base+cuda.Ptr(i)), append(e.ids, 1)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go r.pace(ctx, func() bool { return true }, r.audit)
				for i := range r.exports {
					time.Sleep(time.Duration(i) * time.Millisecond) // of the bubble's clock
					freed := time.Now()
					driver.freed.Store(uint64(r.exports[i].pieces[pieces-1]))
					for stays := true; stays; {
						time.Sleep(time.Millisecond)
						r.mu.Lock()
						stays = r.exports[i].leaving == staying
						r.mu.Unlock()
						require.LessOrEqual(t, time.Since(freed), 200*time.Millisecond, "export %d", i)
					}
				}
			})
		})
	}
}
