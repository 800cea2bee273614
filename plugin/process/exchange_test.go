package process

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/plugin/internal/probe"
)

// The endpoint publishes for itself and for a plan, and gets of all ranks, the same bytes
// as the transport itself would.
func TestExchangeCarriesEveryByte(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e := open(t, start(t, "probe"))
	x := e.(plugin.Exchanger)
	plan := allReduce
	plan.Op, plan.Memory, plan.PeerRead, plan.NVLink = plugin.OpMax, plugin.MemoryKindCuda, true, true
	for _, exchange := range []plugin.Exchange{{}, {Request: plan, Algorithm: probe.Algorithm}} {
		published, err := x.Publish(ctx, exchange)
		require.NoError(t, err)
		require.Equal(t, probe.Published(exchange, 1), published)
		all := make([][]byte, 4)
		for rank := range all {
			all[rank] = probe.Published(exchange, rank)
		}
		require.NoError(t, x.Connect(ctx, exchange, all))
		all[3] = append([]byte(nil), all[3]...)
		all[3][0] = 1
		err = x.Connect(ctx, exchange, all)
		require.ErrorIs(t, err, plugin.Protocol)
		require.ErrorContains(t, err, "rank 3 has published")
		require.ErrorContains(t, err, "connect")
	}
	require.ErrorContains(t, x.Connect(ctx, plugin.Exchange{}, nil), "0 ranks have published, want 4")
	require.NoError(t, e.Close())
	_, err := x.Publish(ctx, plugin.Exchange{})
	require.ErrorIs(t, err, plugin.Closed)
}

func TestPublishedBytesAreBounded(t *testing.T) {
	for n, code := range map[string]plugin.Code{"2048": plugin.OK, "2049": plugin.Protocol} {
		e := openWith(t, probe.OptionBytes, n)
		published, err := e.(plugin.Exchanger).Publish(context.Background(), plugin.Exchange{})
		require.Equal(t, code, plugin.CodeOf(err), "%v", err)
		if err == nil {
			require.Len(t, published, plugin.MaxPublished)
		} else {
			require.ErrorContains(t, err, "it publishes 2049 bytes, want at most 2048")
		}
		require.NoError(t, e.Close())
	}
}

// A Connect ends with its context, in the plugin too: the endpoint is free for its next call.
func TestConnectEndsWithItsContext(t *testing.T) {
	e := openWith(t, probe.OptionWait, "")
	limited, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	ctx, cancel := context.WithCancel(limited)
	connected := make(chan error)
	go func() { connected <- e.(plugin.Exchanger).Connect(ctx, plugin.Exchange{}, allPublished()) }()
	cancel()
	require.ErrorIs(t, <-connected, plugin.Aborted)
	_, err := e.Prepare(limited, allReduce, probe.Algorithm)
	require.NoError(t, err)
	require.NoError(t, e.Close())
}

// What a transport says at its deadline arrives, before the host gives the call up.
func TestWhatIsSaidAtTheDeadlineArrives(t *testing.T) {
	e := openWith(t, probe.OptionWait, "")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var failure *plugin.Error
	require.ErrorAs(t, e.(plugin.Exchanger).Connect(ctx, plugin.Exchange{}, allPublished()), &failure)
	require.Equal(t, "probe: connect on rank 1: connect waited for rank 3", failure.Message)
	require.Equal(t, plugin.Timeout, failure.Code)
	require.Equal(t, 3, failure.Rank)
	require.ErrorIs(t, failure, context.DeadlineExceeded)
	require.NoError(t, e.Close())
}

// allPublished has the bytes that the ranks' probes publish for their endpoints.
func allPublished() (all [][]byte) {
	for rank := range 4 {
		all = append(all, probe.Published(plugin.Exchange{}, rank))
	}
	return all
}

// Whatever the communicator ended with gets to the plugin.
func TestAbortArrives(t *testing.T) {
	e := openWith(t)
	e.(plugin.Aborter).Abort("rank 3 has left")
	_, err := e.(plugin.Exchanger).Publish(t.Context(), plugin.Exchange{})
	require.ErrorIs(t, err, plugin.Aborted)
	require.ErrorContains(t, err, "rank 3 has left")
	require.NoError(t, e.Close())
}

func openWith(t *testing.T, options ...string) plugin.Endpoint {
	t.Helper()
	e, err := start(t, "probe").Transport().Open(context.Background(), openConfig(options...))
	require.NoError(t, err)
	return e
}
