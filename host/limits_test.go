package host_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// small serves worlds of two ranks.
type small struct{ plain }

func (s small) Info() plugin.Info {
	info := s.plain.Info()
	info.Name, info.MaxWorld = "small", 2
	return info
}

// A world that no transport serves is refused by each rank alone, before it waits for
// the others, with the transport and its limit.
func TestWorldsBeyondTheTransportsLimit(t *testing.T) {
	for _, o := range []host.Options{
		{Rank: 299, World: 300, Transports: []string{"builtin:shm"}},
		{Rank: 0, World: 3, Transports: []string{"small"}},
	} {
		o.ID, o.Timeout, o.Logger = "unix://@shunt-nobody-listens-here", time.Minute, silent
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		_, err := host.Init(ctx, o)
		require.NoError(t, ctx.Err(), "it waited for the others")
		cancel()
		require.ErrorIs(t, err, plugin.Unsupported)
		want := "no transport serves a world of 300 ranks on host memory: shm at most 256"
		if o.World == 3 {
			want = "no transport serves a world of 3 ranks on host memory: small at most 2"
		}
		require.ErrorContains(t, err, want)
	}
}

// Beside one that serves it, a transport with a lower limit is left out.
func TestTransportWithALowerLimitIsLeftOut(t *testing.T) {
	for _, n := range []int{2, 3} {
		for _, err := range worldErrors(t, n, func(_ int, o *host.Options) { o.Transports = []string{"small", "shm"} },
			func(c *host.Communicator) error {
				var names []string
				for _, l := range c.Transports() {
					names = append(names, l.Info.Name)
				}
				require.Equal(t, map[int]string{2: "small shm", 3: "shm"}[n], strings.Join(names, " "))
				return c.Barrier(nil)
			}) {
			require.NoError(t, err)
		}
	}
}

// A timeout of centuries is as good as none, whatever parts of it the steps of a communicator's life may take.
func TestTimeoutsOfCenturies(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, timeout := range []time.Duration{100 * year, 150 * year, 200 * year, math.MaxInt64} {
		waits := make(chan struct{})
		for rank, err := range worldErrors(t, 2, func(_ int, o *host.Options) { o.Timeout = timeout },
			func(c *host.Communicator) error {
				if c.Rank() == 1 { // the other sleeps until this one comes
					<-waits
				} else {
					time.AfterFunc(20*time.Millisecond, func() { close(waits) })
				}
				if err := c.Barrier(nil); err != nil {
					return err
				}
				w, err := c.NewWindow(t.Context(), 64)
				if err != nil {
					return err
				}
				split, err := c.Split(t.Context(), 0, 0)
				if err != nil {
					return err
				}
				return errors.Join(split.Close(), w.Close())
			}) {
			require.NoError(t, err, "rank %d, %v", rank, timeout)
		}
	}
}
