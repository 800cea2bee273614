package host_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
)

// linked is what the ranks' transports are told of NVLink.
func linked(t *testing.T, n int) []bool {
	t.Helper()
	answers := make([]bool, n)
	deviceWorld(t, n, func(r *rank) error {
		answers[r.Rank()] = host.NVLink(r.Communicator)
		return nil
	})
	return answers
}

func TestAllRanksHaveNVLink(t *testing.T) {
	defer host.ReplaceNVLink(func(gpu, peer string) (bool, error) {
		if gpu == peer {
			t.Errorf("GPU %s was asked for a link to itself", gpu)
		}
		return true, nil
	})()
	require.Equal(t, []bool{true, true, true}, linked(t, 3))
}

// One path without NVLink, or of which nobody knows, seen by one rank alone, decides for
// all ranks.
func TestOnePathWithoutNVLinkDecidesForAll(t *testing.T) {
	for name, answer := range map[string]error{"PCIe": nil, "unknown": errors.New("no NVML")} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			defer host.ReplaceNVLink(func(string, string) (bool, error) {
				if calls.Add(1) == 4 {
					return false, answer
				}
				return true, nil
			})()
			require.Equal(t, []bool{false, false, false}, linked(t, 3))
		})
	}
}
