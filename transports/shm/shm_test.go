package shm

import (
	"context"
	"fmt"
	"testing"

	"github.com/shunt-ccl/shunt/host/algorithm/plantest"
	"github.com/shunt-ccl/shunt/plugin"
)

// openEndpoints opens an endpoint for each rank.
func openEndpoints(t testing.TB, world int) []plugin.Endpoint {
	t.Helper()
	endpoints := make([]plugin.Endpoint, world)
	for r := range endpoints {
		e, err := Transport{}.Open(context.Background(),
			plugin.OpenConfig{Rank: r, World: world, Memory: plugin.MemoryKindHost, Device: -1})
		if err != nil {
			t.Fatal(err)
		}
		endpoints[r] = e
	}
	return endpoints
}

func openWorld(t testing.TB, world int) *plantest.World {
	t.Helper()
	return plantest.Open(t, openEndpoints(t, world), nil)
}

// names returns the algorithms that Supports offers for a collective.
func names(t testing.TB, c plugin.Collective, world int) []string {
	t.Helper()
	s := Transport{}.Supports(plugin.Request{Collective: c, World: world, Hosts: 1, PeerRead: true})
	if len(s.Algorithms) == 0 {
		t.Fatalf("%s in a world of %d: %s", c, world, s.Reason)
	}
	var list []string
	for _, a := range s.Algorithms {
		list = append(list, a.Name)
	}
	return list
}

func TestEveryCollective(t *testing.T) {
	for world := 1; world <= 5; world++ {
		t.Run(fmt.Sprintf("world %d", world), func(t *testing.T) {
			t.Parallel()
			w := openWorld(t, world)
			for _, c := range plugin.Collectives() {
				if table(request(c, world)) == nil {
					continue
				}
				for _, name := range names(t, c, world) {
					operations := plantest.Matrix(c, name, world)
					if err := w.Run(operations, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}
