package conformance

import (
	"fmt"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

// A short run of fewer types has no others in single operations, and for the rest what a run of all types has: every
// collective with every algorithm, in and out of place, with every op and in every mode, and every scenario.
func TestFewerTypesCoverTheRest(t *testing.T) {
	for _, memory := range plugin.MemoryKinds() {
		t.Run(memory.String(), func(t *testing.T) {
			for _, world := range []int{2, 3} {
				all := covered(cases(world, true, Axes(memory), twoEach(memory), nil))
				some := cases(world, true, Axes(memory), twoEach(memory), []plugin.DType{plugin.Float32})
				have := covered(some)
				for part := range all {
					if !have[part] {
						t.Errorf("world %d has no case %s", world, part)
					}
				}
				for _, c := range some {
					if c.Scenario == "" && c.Collective != plugin.Barrier && c.DType != plugin.Float32 {
						t.Errorf("%s is in a run of float32", c.Name())
					}
				}
			}
		})
	}
}

// covered lists what cases have beside their types.
func covered(list []Case) map[string]bool {
	have := map[string]bool{}
	for _, c := range list {
		if c.Scenario != "" {
			have[fmt.Sprint(c.Scenario, " on the device ", c.OnDevice)] = true
			continue
		}
		mode, _ := c.Axis.parts()
		have[fmt.Sprint(c.Collective, " ", mode, " on the device ", c.OnDevice)] = true
		have[fmt.Sprint(c.Collective, " ", c.Algorithm, " in place ", c.InPlace)] = true
		if c.Collective.Reduces() {
			have[fmt.Sprint(c.Collective, " ", c.Op)] = true
		}
	}
	return have
}
