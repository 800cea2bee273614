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

// pieces makes a peer export memory by handle in a place of its page.
func (t *Registry) pieces(rank, at int, generation uint64) {
	t.pages[rank].write(at, pageEntry{generation: generation, kind: plugin.HandleKindCudaVmm,
		base: cuda.Ptr(at+1) << 32, bytes: 2 << 20, pieces: 1})
}

// A peer that is stopped, whatever it exports, keeps no memory that was freed mapped by others for longer than a
// second, and is asked less and less often.
func TestSilentPeersHoldUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := aRegistry(t)
		r.SetTimeout(time.Hour)
		driver := &freeing{Driver: r.gpu.Driver}
		r.gpu.Driver = driver
		for i := range plugin.DirectoryExports {
			r.pieces(1, i, 1)
		}
		fetches := 0
		r.fetch = func(ctx context.Context, rank int, _ string, _ int) ([]int, error) {
			fetches++
			<-ctx.Done()
			return nil, plugin.Errorf(plugin.CodeOf(ctx.Err()), "rank %d does not respond", rank)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go r.pace(ctx, func() bool { r.followPeer(ctx, 1, true); return true }, r.audit)
		for range 100 {
			at := r.export(t)
			time.Sleep(700 * time.Millisecond) // of the bubble's clock
			freed := time.Now()
			driver.freed.Store(uint64(r.exports[at].pieces[0]))
			for stays := true; stays; {
				time.Sleep(time.Millisecond)
				r.mu.Lock()
				stays = r.exports[at].leaving == staying
				r.mu.Unlock()
				require.LessOrEqual(t, time.Since(freed), time.Second)
			}
		}
		cancel()
		synctest.Wait()
		require.LessOrEqual(t, fetches, 12, "in more than a minute")
		require.Greater(t, fetches, 5)
		for i := range plugin.DirectoryExports {
			require.Zero(t, *r.pages[0].mapped(1, i), "a peer that is slow is not one whose memory cannot be mapped")
		}
	})
}

// A peer that takes its time gets through in the end, and then with all it exports.
func TestSlowPeersGetThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := aRegistry(t)
		r.pieces(1, 0, 1)
		r.pieces(1, 1, 1)
		var answered []string
		r.fetch = func(ctx context.Context, _ int, tag string, _ int) ([]int, error) {
			select {
			case <-ctx.Done():
				return nil, plugin.Errorf(plugin.CodeOf(ctx.Err()), "too late")
			case <-time.After(700 * time.Millisecond):
				answered = append(answered, tag)
				return nil, plugin.Errorf(plugin.System, "it has none")
			}
		}
		began := time.Now()
		for answered == nil {
			r.followPeer(t.Context(), 1, false)
			time.Sleep(keepPeriod)
			require.Less(t, time.Since(began), 20*time.Second)
		}
		require.Len(t, answered, 2, "the second has as much time as the first")
		for i := range 2 {
			require.NotZero(t, r.imports[1][i].pause, "another error has a pause of its own")
		}
	})
}

// A peer's memory that is about to be unmapped is none that a symmetric range may hold.
func TestImportsAreForgottenBeforeTheyAreClosed(t *testing.T) {
	r := aRegistry(t)
	holds, closed := error(nil), false
	m := &sharedMapping{Closer: closer(func() error {
		closed = true
		holds = r.hold(&Range{base: 1 << 32, bytes: 64}, []rangeExport{{}, {Bytes: 64, Generation: 5}})
		return nil
	})}
	m.hold()
	r.imports[1][0] = imported{generation: 5, mapping: m, address: 1 << 33, bytes: 4096}
	r.followPeer(t.Context(), 1, false)
	require.True(t, closed)
	require.ErrorIs(t, holds, plugin.Unsupported)
	require.Zero(t, r.imports[1][0])
}
