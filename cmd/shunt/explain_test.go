package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/ucx"
)

// A transport that is named for calls between hosts does not take those of one host from shared memory.
func TestUCXBesideSharedMemory(t *testing.T) {
	if s := (ucx.Transport{}).Supports(plugin.Request{Collective: plugin.AllReduce, World: 2}); len(s.Algorithms) == 0 {
		t.Skip("no UCX: " + s.Reason)
	}
	for _, world := range []string{"2", "4"} {
		stdout, stderr, code := shunt(t, "explain", "-n", world, "--memory", "host", "--transports", "shm,ucx", "--json")
		require.Zero(t, code, stderr)
		var list []explained
		require.NoError(t, json.Unmarshal([]byte(stdout), &list))
		require.NotEmpty(t, list)
		for _, e := range list {
			require.Empty(t, e.Error)
			require.True(t, strings.HasPrefix(e.Chosen, "shm/"), "%s of world %s from %d on: %s", e.Collective, world, e.From,
				e.Chosen)
			require.Contains(t, stdout, `"ucx/`, "or nothing here is tested")
		}
	}
}
