package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

// twoEach offers a small and a large algorithm for every collective.
func twoEach(memory plugin.MemoryKind) []offer {
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
		offers = append(offers, offer{Collective: v, Algorithm: "t/small", Bytes: small},
			offer{Collective: v, Algorithm: "t/large", Bytes: large})
	}
	return offers
}

func TestMatrixIsTheSameEveryTime(t *testing.T) {
	for _, memory := range plugin.MemoryKinds() {
		a, b := cases(3, true, Axes(memory), twoEach(memory), nil), cases(3, true, Axes(memory), twoEach(memory), nil)
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%s memory: two calls gave different cases", memory)
		}
	}
}

func TestMatrixCovers(t *testing.T) {
	for _, memory := range plugin.MemoryKinds() {
		t.Run(memory.String(), func(t *testing.T) { matrixCovers(t, memory) })
	}
}

func matrixCovers(t *testing.T, memory plugin.MemoryKind) {
	most := int64(maxMessage)
	if memory == plugin.MemoryKindCuda {
		most = maxLargeMessage
	}
	total, short := 0, 0
	for _, world := range DefaultWorlds() {
		list := cases(world, false, Axes(memory), twoEach(memory), nil)
		total += len(list)
		short += len(cases(world, true, Axes(memory), twoEach(memory), nil))
		names, have := map[string]bool{}, map[string]bool{}
		for _, c := range list {
			if names[c.Name()] {
				t.Errorf("%s appears twice", c.Name())
			}
			names[c.Name()] = true
			mode, stream := c.Axis.parts()
			if c.Scenario != "" && c.OnDevice {
				have[fmt.Sprint(c.Scenario, mode, "counts on the device")] = true
				continue
			}
			if c.Scenario != "" {
				have[c.Scenario] = true
				have[fmt.Sprint(c.Scenario, mode)] = true
				continue
			}
			if c.bytes() > most && (world != 2 || c.bytes() > maxLargeMessage) {
				t.Errorf("%s has %d bytes", c.Name(), c.bytes())
			}
			if c.OnDevice {
				if memory != plugin.MemoryKindCuda {
					t.Errorf("%s on %s memory", c.Name(), memory)
				}
				for _, part := range countedParts(&c) {
					have[part] = true
				}
				continue
			}
			have[fmt.Sprint(c.Collective, mode, stream)] = true
			if c.Algorithm == "t/small" && c.bytes() > 16<<10 || c.Algorithm == "t/large" && c.bytes() < 1<<10 &&
				c.Collective != plugin.Barrier {
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
		for _, part := range countedAll(memory) {
			want(part)
		}
		if memory == plugin.MemoryKindCuda {
			for _, mode := range Modes() {
				want(fmt.Sprint("changing_splits", mode, "counts on the device"))
			}
		}
		for _, s := range scenarioList {
			if s.in(memory) {
				want(s.name)
			}
			if s.where == everywhere && memory == plugin.MemoryKindCuda {
				for _, mode := range Modes() {
					want(fmt.Sprint(s.name, mode))
				}
			}
		}
		for _, v := range whole() {
			for _, axis := range Axes(memory) {
				mode, stream := axis.parts()
				want(fmt.Sprint(v, mode, stream))
			}
		}
	}
	if total < 5000 || short > total/2 {
		t.Errorf("%d cases, %d short", total, short)
	}
	t.Logf("%d cases in a full run, %d in a short one", total, short)
}

// A short run leaves cases out, but no combination that all worlds together
// should have; nor do the fewer worlds of CarriedWorlds.
func TestShortRunStillCovers(t *testing.T) {
	for _, memory := range plugin.MemoryKinds() {
		t.Run(memory.String(), func(t *testing.T) { shortRunCovers(t, memory, DefaultWorlds()) })
	}
	t.Run("carried", func(t *testing.T) { shortRunCovers(t, plugin.MemoryKindHost, CarriedWorlds()) })
}

func shortRunCovers(t *testing.T, memory plugin.MemoryKind, worlds []int) {
	have := map[string]bool{}
	for _, world := range worlds {
		for _, c := range cases(world, true, Axes(memory), twoEach(memory), nil) {
			if c.Scenario != "" {
				have[fmt.Sprint(c.Scenario, c.OnDevice, world)] = true
				continue
			}
			if c.OnDevice {
				have[fmt.Sprint("counts on the device", world, c.Axis)] = true
				for _, part := range countedParts(&c) {
					have[part] = true
				}
				continue
			}
			have[fmt.Sprint(c.Collective, c.Axis)] = true
			have[fmt.Sprint(c.Collective, c.DType, c.Op, world)] = true
			have[fmt.Sprint(c.DType, c.Op, c.Family)] = true
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
				for _, family := range Families() {
					want(d, op, family)
				}
				for _, world := range worlds {
					if v.Reduces() {
						want(v, d, op, world)
					}
				}
			}
		}
		for _, n := range shortCounts {
			want(v, n, "")
		}
		for _, world := range worlds {
			for _, algorithm := range []string{"", "t/small", "t/large"} {
				want(v, world, algorithm, false)
				if canBeInPlace(v) {
					want(v, world, algorithm, true)
				}
			}
		}
	}
	for _, s := range scenarioList {
		for _, world := range worlds {
			if s.in(memory) && (world <= smallWorld || !s.briefly()) {
				want(s.name, false, world)
			}
		}
	}
	if memory == plugin.MemoryKindCuda {
		for _, world := range worlds {
			want("changing_splits", true, world)
			for _, axis := range Axes(memory) {
				want("counts on the device", world, axis)
			}
		}
		for _, d := range plugin.DTypes() {
			want("counts on the device", d)
		}
		for _, n := range shortCounts {
			want("counts on the device", n)
		}
	}
	for _, v := range whole() {
		for _, axis := range Axes(memory) {
			want(v, axis)
		}
	}
}

func TestOverrideForcesOneAlgorithmOfEach(t *testing.T) {
	offers := twoEach(plugin.MemoryKindHost)
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
