package algorithm

import (
	"fmt"
	"testing"

	"github.com/shunt-ccl/shunt/host/algorithm/plantest"
	"github.com/shunt-ccl/shunt/plugin"
)

// openWorld is a world whose plans are this package's, over scratch of the
// given size.
func openWorld(t testing.TB, world int, scratchBytes int64) *plantest.World {
	t.Helper()
	return plantest.Open(t, plantest.ScratchEndpoints(t, world, scratchBytes), func(req plugin.Request, name string) (*plugin.Plan, error) {
		return Plan(req, name, 0, scratchBytes)
	})
}

func names(t testing.TB, c plugin.Collective, world int, scratchBytes int64) []string {
	t.Helper()
	s := Supports(plugin.Request{Collective: c, World: world, Hosts: 1}, scratchBytes)
	if len(s.Algorithms) == 0 {
		t.Fatalf("%s in a world of %d: %s", c, world, s.Reason)
	}
	var list []string
	for _, a := range s.Algorithms {
		if !IsGeneric(a.Name) {
			t.Errorf("%s is not generic", a.Name)
		}
		list = append(list, a.Name)
	}
	return list
}

func TestEveryCollective(t *testing.T) {
	for world := 1; world <= 5; world++ {
		sizes := []int64{64 << 10}
		if world == 3 {
			sizes = append(sizes, 4<<20)
		}
		for _, scratchBytes := range sizes {
			t.Run(fmt.Sprintf("world %d, %d KiB of scratch", world, scratchBytes>>10), func(t *testing.T) {
				t.Parallel()
				w := openWorld(t, world, scratchBytes)
				for c := plugin.AllReduce; c <= plugin.Barrier; c++ {
					for _, name := range names(t, c, world, scratchBytes) {
						if err := w.Run(plantest.Matrix(c, name, world), nil); err != nil {
							t.Fatal(err)
						}
					}
				}
			})
		}
	}
}
