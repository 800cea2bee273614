package bootstrap

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// A rank whose context ends just when the ranks are welcomed ends the job for all of them with that as the reason.
func TestARankThatStopsWaitingAsAllAreWelcomed(t *testing.T) {
	const n, stops = 3, 1
	id, root, err := NewID("127.0.0.1:0")
	require.NoError(t, err)
	defer root.Close()
	ctx, cancel := context.WithCancel(t.Context())
	welcomed = func(rank int) {
		if rank == stops {
			cancel()
		}
	}
	defer func() { welcomed = func(int) {} }()
	var others sync.WaitGroup
	others.Add(n - 1)
	for rank, err := range each(n, func(rank int) error {
		its := t.Context()
		if rank == stops {
			its = ctx
		} else {
			defer others.Done()
		}
		s, err := Join(its, Config{Rank: rank, World: n, ID: id, HaveID: true, Timeout: 20 * time.Second, Logger: quiet})
		if err != nil {
			return err
		}
		defer s.Close()
		if rank == stops { // it takes no part: its barrier would end before the store hears of its context, or fail by it
			others.Wait()
		}
		return s.All().Barrier(its, "load")
	}) {
		require.ErrorIs(t, err, plugin.Aborted, "rank %d", rank)
		require.ErrorContains(t, err, "rank 1 ", "rank %d", rank)
		require.ErrorContains(t, err, "stopped waiting for the other ranks", "rank %d", rank)
	}
}
