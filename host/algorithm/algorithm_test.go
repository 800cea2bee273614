package algorithm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shunt-ccl/shunt/host/algorithm/plantest"
	"github.com/shunt-ccl/shunt/plugin"
)

// openWorld returns a world whose plans are this package's, over scratch of the
// given size.
func openWorld(t testing.TB, world int, scratchBytes int64) *plantest.World {
	t.Helper()
	return plantest.Open(t, plantest.ScratchEndpoints(t, world, scratchBytes),
		func(req plugin.Request, name string) (*plugin.Plan, error) {
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
	for _, world := range worlds {
		sizes := []int64{64 << 10}
		if world == 3 {
			sizes = append(sizes, 4<<20)
		}
		for _, scratchBytes := range sizes {
			t.Run(fmt.Sprintf("world %d, %d KiB of scratch", world, scratchBytes>>10), func(t *testing.T) {
				t.Parallel()
				w := openWorld(t, world, scratchBytes)
				for _, c := range plugin.Collectives() {
					if c.OneSided() {
						continue
					}
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

// Every collective of the table has a plan, in every world, and all plans stay
// within the limits.
func TestEveryPlanIsValid(t *testing.T) {
	const scratchBytes = 64 << 20
	for _, world := range []int{1, 2, 16, maxWorld} {
		for _, c := range plugin.Collectives() {
			for _, name := range names(t, c, world, scratchBytes) {
				for _, r := range []int{0, world - 1} {
					req := plugin.Request{Collective: c, DType: plugin.Float32, Op: plugin.OpPremulSum, World: world, Hosts: 1,
						Rank: r}
					if _, err := Plan(req, name, 2, scratchBytes); err != nil {
						t.Errorf("%s/%s, rank %d of %d: %v", c, name, r, world, err)
					}
				}
			}
		}
	}
}

func TestSupportsAnswersReasons(t *testing.T) {
	for _, test := range []struct {
		change  func(*plugin.Request)
		scratch int64
		reason  string
	}{
		{func(r *plugin.Request) { r.Memory = plugin.MemoryKindCuda }, testScratch, "host memory only"},
		{func(r *plugin.Request) { r.World = maxWorld + 1 }, testScratch, "257"},
		{func(r *plugin.Request) { r.Collective = 99 }, testScratch, "no such collective"},
		{func(*plugin.Request) {}, 4096, "too few"},
		{func(*plugin.Request) {}, -1, "too few"},
	} {
		req := plugin.Request{World: 4, Hosts: 1}
		test.change(&req)
		s := Supports(req, test.scratch)
		if len(s.Algorithms) != 0 || !strings.Contains(s.Reason, test.reason) {
			t.Errorf("%+v: %d algorithms, reason %q, want one with %q", req, len(s.Algorithms), s.Reason, test.reason)
		}
		if _, err := Plan(req, Prefix+"/put_direct", 0, test.scratch); !errors.Is(err, plugin.Unsupported) {
			t.Errorf("%+v: plan: %v, want unsupported", req, err)
		}
	}
}

// Words, lines and channels of all classes and ranks are disjoint, follow each other and end inside the scratch.
func TestLayout(t *testing.T) {
	for _, world := range []int{1, 2, 5, 64, maxWorld} {
		for _, scratchBytes := range []int64{1 << 20, 3<<20 + 40, 64 << 20} {
			l, ok := newLayout(world, scratchBytes)
			if !ok {
				continue
			}
			n := int64(world)
			parts := []struct {
				what              string
				of                func(c class, peer int64) int64
				bytes, each, most int64 // most: bytes left free before the first
			}{
				{"produced", func(c class, peer int64) int64 { return l.producedWord(c) + peer*word }, word, word, 0},
				{"consumed", func(c class, peer int64) int64 { return l.consumedWord(c) + peer*word }, word, word, line - 1},
				{"credit", func(c class, peer int64) int64 { return l.creditLine(c) + peer*line }, line, line, line - 1},
				{"slots", func(c class, peer int64) int64 { return l.slotsFrom(c, int(peer)) }, slotsEach * l.stride, line,
					headerAligned - 1},
			}
			var end int64
			for _, part := range parts {
				free := part.most
				for c := range class(countClasses) {
					for peer := range n {
						at := part.of(c, peer)
						if at < end || at > end+free || at%part.each != 0 {
							t.Fatalf("world %d: %s of class %d and rank %d at %d, behind %d", world, part.what, c, peer, at, end)
						}
						end, free = at+part.bytes, 0
					}
				}
			}
			if end > scratchBytes || end < scratchBytes-countClasses*n*slotsEach*line-headerAligned ||
				l.stride != line+l.capacity || l.capacity%line != 0 {
				t.Errorf("world %d: layout %+v of %d bytes ends at %d", world, l, scratchBytes, end)
			}
		}
	}
}

// A message takes its latency once a peer, and shares its bandwidth among peers where each gets all of it.
func TestCostsGrowWithPeers(t *testing.T) {
	for _, c := range plugin.Collectives() {
		pair := Supports(plugin.Request{Collective: c, World: 2, Hosts: 1}, testScratch).Algorithms
		five := Supports(plugin.Request{Collective: c, World: 5, Hosts: 1}, testScratch).Algorithms
		for i, r := range inWorld(c, 2) {
			bandwidth := pair[i].Bandwidth
			if r.shared {
				bandwidth /= 4
			}
			if five[i].Latency != 4*pair[i].Latency || five[i].Bandwidth != bandwidth {
				t.Errorf("%s: %+v of 5 ranks, %+v of 2", c, five[i], pair[i])
			}
		}
	}
}

// Whatever is asked, the result is a valid plan or an error, and Plan knows
// exactly the names that Supports gives.
func FuzzPlan(f *testing.F) {
	f.Add(uint32(0), uint32(7), uint32(0), 2, uint32(0), 0, "generic/put_one_shot", uint32(0), int64(1<<20))
	f.Add(uint32(16), uint32(1), uint32(5), 3, uint32(1), -1, "generic/put_direct", uint32(9), int64(-1))
	f.Fuzz(func(t *testing.T, collective, dtype, op uint32, world int, memory uint32, rank int, name string, region uint32,
		scratchBytes int64) {
		if world > 16 {
			world %= 300 // larger plans are slow to write and no different
		}
		req := plugin.Request{
			Collective: plugin.Collective(collective), DType: plugin.DType(dtype), Op: plugin.Op(op),
			World: world, Hosts: 1, Memory: plugin.MemoryKind(memory), Rank: rank,
		}
		offered := slices.ContainsFunc(Supports(req, scratchBytes).Algorithms,
			func(a plugin.Algorithm) bool { return a.Name == name })
		plan, err := Plan(req, name, region, scratchBytes)
		switch {
		case err == nil && !offered:
			t.Errorf("a plan for %+v by %q, which Supports does not offer", req, name)
		case err == nil:
			if err := plan.Validate(); err != nil {
				t.Error(err)
			}
		case offered && rank >= 0 && rank < world, plugin.CodeOf(err) == plugin.Internal:
			t.Errorf("no plan for %+v by %q: %v", req, name, err)
		}
	})
}
