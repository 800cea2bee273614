package host_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/plugin"
)

// Each exchange costs a way to the store and back, which is what users of distant hosts wait for.
func TestExchangesOfANewCommunicator(t *testing.T) {
	for transport, want := range map[string]struct{ init, call uint64 }{
		// load; introduce; open; share regions; prepare
		"shm": {5, 1},
		// and one for what endpoints publish for send and recv, and before the first call
		"exchanging": {6, 2},
	} {
		t.Run(transport, func(t *testing.T) {
			exchanger.manner = manner{}
			for _, n := range []int{2, 5} {
				for rank, err := range worldErrors(t, n, func(_ int, o *host.Options) {
					o.Transports = []string{"builtin:" + transport}
				}, func(c *host.Communicator) error {
					before := host.Exchanges(c)
					if before > want.init {
						return plugin.Errorf(plugin.Internal, "init took %d exchanges, want at most %d", before, want.init)
					}
					for range 2 { // the second call needs none
						x := []float32{1}
						if err := c.Do(&host.Operation{Collective: plugin.AllReduce, DType: plugin.Float32, Op: plugin.OpSum,
							Send: at(x), Recv: at(x), Count: 1}); err != nil {
							return err
						}
					}
					called := host.Exchanges(c)
					if called-before > want.call {
						return plugin.Errorf(plugin.Internal, "two calls took %d exchanges, want at most %d", called-before, want.call)
					}
					part, err := c.Split(context.Background(), 0, c.Rank())
					if err != nil {
						return err
					}
					// One for the colors, and none to load transports.
					if took := host.Exchanges(c) - called; took > want.init {
						err = plugin.Errorf(plugin.Internal, "a split took %d exchanges, want at most %d", took, want.init)
					}
					if failed := part.Close(); err == nil {
						err = failed
					}
					return err
				}) {
					require.NoError(t, err, "rank %d of %d", rank, n)
				}
			}
		})
	}
}
