package launch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A machine without IPv4, or a sandbox without a network, starts jobs all the same.
func TestFreePort(t *testing.T) {
	port, err := freePort(loopback)
	require.NoError(t, err)
	require.NotEqual(t, "0", port)
	port, err = freePort("192.0.2.1") // no machine has this address
	require.NoError(t, err)
	require.Equal(t, "29500", port)
}
