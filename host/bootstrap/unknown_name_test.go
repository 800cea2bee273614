package bootstrap

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// Rank 0 waits for its name to become known, as the other ranks do.
func TestRankZeroWhoseNameIsUnknownYet(t *testing.T) {
	old := lookupAddresses
	var mu sync.Mutex
	asked := 0
	lookupAddresses = func(context.Context, string, string) ([]netip.Addr, error) {
		mu.Lock()
		defer mu.Unlock()
		if asked++; asked < 4 {
			return nil, &net.DNSError{Err: "no such host", Name: "localhost", IsNotFound: true}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	t.Cleanup(func() { lookupAddresses = old })
	url := fmt.Sprintf("tcp://localhost:%d", freePort(t))
	noErrors(t, each(2, func(rank int) error {
		s, err := Join(t.Context(), Config{Rank: rank, World: 2, URL: url, Timeout: time.Minute, Logger: quiet})
		if err != nil {
			return err
		}
		return s.Close()
	}))

	asked = -1 << 30 // it stays unknown
	_, err := Join(t.Context(), Config{Rank: 0, World: 2, URL: url, Timeout: 100 * time.Millisecond, Logger: quiet})
	require.Equal(t, plugin.Timeout, plugin.CodeOf(err))
	require.ErrorContains(t, err, "cannot listen: lookup localhost: no such host")
}
