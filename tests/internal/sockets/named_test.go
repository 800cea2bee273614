package sockets_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/bootstrap"
	"github.com/shunt-ccl/shunt/host/carrier"
	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/tests/internal/sockets"
	"github.com/shunt-ccl/shunt/transports/shm"
)

// picky is shm that one rank of a test cannot use.
type picky struct{ shm.Transport }

var pickyRank = -1

func (p picky) Info() plugin.Info {
	i := p.Transport.Info()
	i.Name = "picky"
	return i
}

func (p picky) Open(ctx context.Context, c plugin.OpenConfig) (plugin.Endpoint, error) {
	if c.Rank == pickyRank {
		return nil, plugin.Errorf(plugin.Unsupported, "not in this container")
	}
	return p.Transport.Open(ctx, c)
}

func init() {
	host.Register(shm.Transport{})
	host.Register(picky{})
}

// Where one rank names the transports that the others take because they are there, all use the same.
func TestTransportsThatOneRankNames(t *testing.T) {
	require.NoError(t, errors.Join(initBoth(t, func(rank int, o *host.Options) {
		if rank == 1 {
			for _, name := range carrier.Registered() {
				o.Transports = append(o.Transports, "builtin:"+name)
			}
		}
	})...))
}

// A transport that one rank of a host cannot use, and that was not named, is used by no rank.
func TestTransportThatOneRankOfAHostCannotUse(t *testing.T) {
	pickyRank = 1
	defer func() { pickyRank = -1 }()
	require.NoError(t, errors.Join(initBoth(t, func(int, *host.Options) {})...))
}

// initBoth makes a communicator of two ranks in host memory, runs a barrier, and returns each rank's error.
func initBoth(t *testing.T, adjust func(rank int, o *host.Options)) []error {
	t.Helper()
	id, root, err := bootstrap.NewID("")
	require.NoError(t, err)
	defer root.Close()
	errs := make([]error, 2)
	var ranks sync.WaitGroup
	for rank := range 2 {
		ranks.Go(func() {
			o := host.Options{Rank: rank, World: 2, ID: id.String(), Timeout: 5 * time.Second,
				Logger: slog.New(slog.DiscardHandler)}
			adjust(rank, &o)
			c, err := host.Init(context.Background(), o)
			if err == nil {
				err = errors.Join(c.Barrier(nil), c.Close())
			}
			errs[rank] = err
		})
	}
	ranks.Wait()
	return errs
}

// Connect ends with its context, for whatever it waits: a rank that has not connected, and one that has and says
// nothing.
func TestConnectEndsWithItsContext(t *testing.T) {
	for _, silent := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		e, err := sockets.Transport{}.Open(ctx, plugin.OpenConfig{World: 2})
		require.NoError(t, err)
		card, err := e.(plugin.Exchanger).Publish(ctx, plugin.Exchange{})
		require.NoError(t, err)
		if silent {
			var at struct{ Address string }
			require.NoError(t, json.Unmarshal(card, &at))
			c, err := net.Dial("tcp", at.Address)
			require.NoError(t, err)
			defer c.Close()
		}
		before, connected := descriptors(t), make(chan error)
		go func() { connected <- e.(plugin.Exchanger).Connect(ctx, plugin.Exchange{}, [][]byte{card, card}) }()
		for silent && descriptors(t) == before { // until it has accepted
			runtime.Gosched()
		}
		cancel()
		err = <-connected
		require.ErrorIs(t, err, plugin.Aborted)
		require.ErrorContains(t, err, "rank 0: 1 ranks have not connected")
		require.NoError(t, e.Close())
	}
}

// descriptors counts those that this process has open.
func descriptors(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(list)
}
