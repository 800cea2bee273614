package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

// countedParts lists what a case with counts on the device covers.
func countedParts(c *Case) (parts []string) {
	for _, part := range []any{c.DType, c.Count, c.Split, c.Displ, c.Axis} {
		parts = append(parts, fmt.Sprint("counts on the device", part))
	}
	return append(parts, fmt.Sprint("counts on the device", "comm", c.Comm),
		fmt.Sprint("counts on the device", "repeat", c.Repeat), fmt.Sprint("counts on the device", "row", c.Row, c.Displ),
		fmt.Sprint("counts on the device", "shift", c.SendShift, c.RecvShift, c.OddRanks),
		fmt.Sprint("counts on the device", c.Split, c.Displ))
}

// countedAll lists what the cases of a world must cover.
func countedAll(memory plugin.MemoryKind) (parts []string) {
	if memory != plugin.MemoryKindCuda {
		return nil
	}
	for _, d := range plugin.DTypes() {
		parts = append(parts, fmt.Sprint("counts on the device", d))
	}
	for _, n := range slices.Concat(counts, largeCounts) {
		parts = append(parts, fmt.Sprint("counts on the device", n))
	}
	for _, axis := range Axes(memory) {
		parts = append(parts, fmt.Sprint("counts on the device", axis))
	}
	for _, split := range []Split{Even, Ragged, Single, Sparse} {
		for _, displ := range []Displ{NoDispl, Packed, Gapped, Reversed} {
			parts = append(parts, fmt.Sprint("counts on the device", split, displ),
				fmt.Sprint("counts on the device", "row", 3, displ))
		}
	}
	for _, s := range shifts {
		parts = append(parts, fmt.Sprint("counts on the device", "shift", s.send, s.recv, s.odd))
	}
	return append(parts, fmt.Sprint("counts on the device", "comm", 1), fmt.Sprint("counts on the device", "repeat", 2))
}

// Blocks of every turn lie within the capacities, which are the same in every turn, and
// counts of two ends agree. Some turn's counts reach the end, and turns differ.
func TestCountsOnTheDeviceFitInEveryTurn(t *testing.T) {
	for _, split := range []Split{Even, Ragged, Single, Sparse} {
		for i, displ := range []Displ{NoDispl, Packed, Gapped, Reversed} {
			first := Case{Collective: plugin.AllToAllV, OnDevice: true, DType: plugin.Float16, Count: 37, World: 3, Split: split,
				Displ: displ, Row: []int64{0, 3}[i%2], Seed: 11, Family: Exact}
			changed, reached := false, false
			for turn := range uint64(5) {
				c := first.at(turn)
				for rank := range c.World {
					l := c.layoutOf(rank)
					if l.send != first.capacity() || l.recv != first.capacity() {
						t.Errorf("%s turn %d: %d and %d elements", c.Name(), turn, l.send, l.recv)
					}
					for i, b := range slices.Concat(l.input, l.output) {
						if b.at < 0 || b.at+b.count > first.capacity() {
							t.Errorf("%s turn %d rank %d: block %d is [%d,+%d) of %d", c.Name(), turn, rank, i, b.at, b.count,
								first.capacity())
						}
						reached = reached || b.at+b.count == first.capacity()
					}
					for peer, n := range l.sendCounts {
						if theirs := c.layoutOf(peer).recvCounts[rank]; n != theirs {
							t.Errorf("%s turn %d: %d from rank %d to %d, which expects %d", c.Name(), turn, n, rank, peer, theirs)
						}
					}
					changed = changed || !bytes.Equal(l.arrays(c.row()), first.layoutOf(rank).arrays(c.row()))
				}
			}
			if still := split == Even && (displ == NoDispl || displ == Packed); changed == still || still && !reached {
				t.Errorf("%s: counts that change: %t; that reach the end: %t", first.Name(), changed, reached)
			}
		}
	}
}

// What is there without counts on the device is there with them, in the same order, and
// they are few.
func TestCountsOnTheDeviceAddFewCases(t *testing.T) {
	for _, short := range []bool{false, true} {
		for _, world := range DefaultWorlds() {
			list := cases(world, short, Axes(plugin.MemoryKindCuda), twoEach(plugin.MemoryKindCuda), nil)
			at := slices.IndexFunc(list, func(c Case) bool { return c.OnDevice })
			if slices.ContainsFunc(list[at:], func(c Case) bool { return !c.OnDevice }) {
				t.Errorf("world %d: cases with counts on the device are not behind the others", world)
			}
			t.Logf("world %d, short %t: %d cases, %d of them with counts on the device", world, short, len(list), len(list)-at)
			if more := len(list) - at; more*100 > 5*at {
				t.Errorf("world %d, short %t: %d cases with counts on the device beside %d others", world, short, more, at)
			}
		}
	}
}
