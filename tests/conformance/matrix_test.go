package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

// twoEach offers a small and a large algorithm for every collective.
func twoEach() []offer {
	var offers []offer
	for _, v := range plugin.Collectives() {
		var small, large []int64
		for _, bytes := range probes() {
			if bytes <= 16<<10 {
				small = append(small, bytes)
			}
			if bytes >= 1<<10 {
				large = append(large, bytes)
			}
		}
		offers = append(offers, offer{Collective: v, Algorithm: "t/small", Bytes: small}, offer{Collective: v, Algorithm: "t/large", Bytes: large})
	}
	return offers
}

func TestMatrixIsTheSameEveryTime(t *testing.T) {
	a, b := cases(3, true, Axes(), twoEach()), cases(3, true, Axes(), twoEach())
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Error("two calls gave different cases")
	}
}

func TestMatrixCovers(t *testing.T) {
	total, short := 0, 0
	for _, world := range DefaultWorlds() {
		list := cases(world, false, Axes(), twoEach())
		total += len(list)
		short += len(cases(world, true, Axes(), twoEach()))
		names, have := map[string]bool{}, map[string]bool{}
		for _, c := range list {
			if names[c.Name()] {
				t.Errorf("%s appears twice", c.Name())
			}
			names[c.Name()] = true
			if c.Scenario != "" {
				have[c.Scenario] = true
				continue
			}
			if c.bytes() > maxMessage {
				t.Errorf("%s has %d bytes", c.Name(), c.bytes())
			}
			if c.Algorithm == "t/small" && c.bytes() > 16<<10 || c.Algorithm == "t/large" && c.bytes() < 1<<10 && c.Collective != plugin.Barrier {
				t.Errorf("%s has %d bytes, which the algorithm does not serve", c.Name(), c.bytes())
			}
			if (c.Algorithm == "") != (c.Set == 0) {
				t.Errorf("%s is of set %d", c.Name(), c.Set)
			}
			if c.Collective.Reduces() {
				have[fmt.Sprint(c.Collective, c.DType, c.Op, c.Family, c.Algorithm)] = true
			}
			have[fmt.Sprint(c.Collective, c.DType)] = true
			have[fmt.Sprint(c.Collective, "root", c.Root)] = true
			have[fmt.Sprint(c.Collective, "comm", c.Comm)] = true
			have[fmt.Sprint(c.Collective, "in place", c.InPlace)] = true
			have[fmt.Sprint(c.Collective, "count", c.Count)] = true
		}
		want := func(key string) {
			if !have[key] {
				t.Errorf("world %d has no case %s", world, key)
			}
		}
		for _, v := range whole() {
			if v == plugin.Barrier {
				continue
			}
			for _, d := range plugin.DTypes() {
				want(fmt.Sprint(v, d))
				for _, op := range plugin.Ops() {
					for _, family := range Families() {
						for _, algorithm := range []string{"", "t/small", "t/large"} {
							if v.Reduces() {
								want(fmt.Sprint(v, d, op, family, algorithm))
							}
						}
					}
				}
			}
			for _, n := range counts {
				want(fmt.Sprint(v, "count", n))
			}
			want(fmt.Sprint(v, "comm", 1))
			want(fmt.Sprint(v, "in place", false))
			if canBeInPlace(v) {
				want(fmt.Sprint(v, "in place", true))
			}
			if v.Rooted() {
				for root := range world {
					want(fmt.Sprint(v, "root", root))
				}
			}
		}
		for name := range Scenarios() {
			want(name)
		}
	}
	if total < 5000 || short > total/2 {
		t.Errorf("%d cases, %d short", total, short)
	}
	t.Logf("%d cases in a full run, %d in a short one", total, short)
}

// A short run leaves cases out, but no combination that all worlds together
// should have.
func TestShortRunStillCovers(t *testing.T) {
	have := map[string]bool{}
	for _, world := range DefaultWorlds() {
		for _, c := range cases(world, true, Axes(), twoEach()) {
			if c.Scenario != "" {
				have[fmt.Sprint(c.Scenario, world)] = true
				continue
			}
			have[fmt.Sprint(c.Collective, c.DType, c.Op)] = true
			have[fmt.Sprint(c.Collective, c.Count, c.Algorithm)] = true
			have[fmt.Sprint(c.Collective, world, c.Algorithm, c.InPlace)] = true
		}
	}
	want := func(parts ...any) {
		if !have[fmt.Sprint(parts...)] {
			t.Error("no case", parts)
		}
	}
	for _, v := range whole() {
		if v == plugin.Barrier {
			continue
		}
		for _, d := range plugin.DTypes() {
			for _, op := range plugin.Ops() {
				if v.Reduces() {
					want(v, d, op)
				}
			}
		}
		for _, n := range shortCounts {
			want(v, n, "")
		}
		for _, world := range DefaultWorlds() {
			for _, algorithm := range []string{"", "t/small", "t/large"} {
				want(v, world, algorithm, false)
				if canBeInPlace(v) {
					want(v, world, algorithm, true)
				}
			}
		}
	}
	for name := range Scenarios() {
		for _, world := range DefaultWorlds() {
			want(name, world)
		}
	}
}

func TestOverrideForcesOneAlgorithmOfEach(t *testing.T) {
	offers := twoEach()
	if sets(offers) != 2 {
		t.Fatalf("%d sets", sets(offers))
	}
	if text := override(offers, 0); text != "" {
		t.Errorf("set 0 forces %q", text)
	}
	for set, name := range []string{"t/small", "t/large"} {
		clauses := strings.Split(override(offers, set+1), ";")
		if len(clauses) != len(plugin.Collectives()) || !slices.Contains(clauses, "all_reduce="+name+",*") {
			t.Errorf("set %d forces %q", set+1, clauses)
		}
	}
}
