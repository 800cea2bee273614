package plantest

import (
	"fmt"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

// Subject is a library of plans under test: how to open a world of it, and the
// names of its algorithms.
type Subject struct {
	Open  func(t testing.TB, world int) *World
	Names func(c plugin.Collective, world int) []string
}

// Rule01 checks that every rank signals and waits on every peer also where it
// has nothing to send or to receive. In each case one rank, whose messages are
// all empty, is held back. A peer that does not wait for it runs ahead, which
// shows in Held.Ended, and overwrites what the held rank has not read yet,
// which shows in its data.
func Rule01(t *testing.T, s Subject) {
	const world, held, repeats = 3, 1, 12
	symmetric := []plugin.Collective{
		plugin.AllReduce, plugin.AllGather, plugin.AllGatherV, plugin.ReduceScatter, plugin.ReduceScatterV,
		plugin.AllToAll, plugin.AllToAllV, plugin.Barrier,
	}
	for _, c := range symmetric {
		for _, name := range s.Names(c, world) {
			for _, n := range []int64{0, 5, 50000} {
				t.Run(fmt.Sprintf("%s/%s/%d", c, name, n), func(t *testing.T) {
					w := s.Open(t, world)
					o := Operation{Collective: c, DType: plugin.Int32, Algorithm: name, Count: n}
					o.Counts = []int64{n, 0, n}
					o.Matrix = [][]int64{{n, 0, n}, {0, 0, 0}, {n, 0, n}}
					operations := make([]Operation, repeats)
					for i := range operations {
						operations[i] = o
					}
					saw, err := w.RunHeld(operations, held)
					if err != nil {
						t.Error(err)
					}
					if saw.Ended[0] || saw.Ended[2] {
						t.Errorf("a rank ended %d operations before rank %d had begun one: %v", repeats, held, saw.Ended)
					}
				})
			}
		}
	}
}

// Rule13 checks that scratch is reused only under back-pressure: a fast writer
// meets a reader that is held back. The operations are more than any ring
// holds; a writer that ends them all before the reader has begun has overwritten
// messages, which the reader's data shows too.
func Rule13(t *testing.T, s Subject) {
	const world, held = 3, 1
	cases := []struct {
		c       plugin.Collective
		root    int
		writers []int
	}{
		{plugin.Broadcast, 0, []int{0}},
		{plugin.Send, 0, []int{0}},
		{plugin.Reduce, held, []int{0, 2}},
		{plugin.Gather, held, []int{0, 2}},
		{plugin.GatherV, held, []int{0, 2}},
		{plugin.Scatter, 0, []int{0}},
		{plugin.ScatterV, 0, []int{0}},
	}
	for _, test := range cases {
		for _, name := range s.Names(test.c, world) {
			for _, n := range []int64{0, 3, 3000, 40000} {
				t.Run(fmt.Sprintf("%s/%s/%d", test.c, name, n), func(t *testing.T) {
					w := s.Open(t, world)
					operations := make([]Operation, 100) // more than fit any scratch
					if n < 10 {
						operations = make([]Operation, 400)
					}
					for i := range operations {
						operations[i] = Operation{
							Collective: test.c, DType: plugin.Int32, Algorithm: name, Root: test.root, Peer: held,
							Count: n, Counts: []int64{n, n, n},
						}
					}
					saw, err := w.RunHeld(operations, held)
					if err != nil {
						t.Error(err)
					}
					for _, r := range test.writers {
						if saw.Ended[r] {
							t.Errorf("rank %d ended %d operations before its reader, rank %d, had begun one", r, len(operations), held)
						}
					}
				})
			}
		}
	}
}

// Rule02 checks that counters live in the regions and only grow: all plans are
// prepared before anything runs and then run many times in every order, so a
// plan that carried an epoch of its own would repeat one; and words, which are
// offsets in a region that counters and semaphores stand at, never fall.
func Rule02(t *testing.T, s Subject, region uint32, words func(world int) []int64) {
	const world = 3
	w := s.Open(t, world)
	var operations []Operation
	for round := range 5 {
		for _, c := range plugin.Collectives() {
			if c == plugin.Recv || c.OneSided() {
				continue
			}
			for i, name := range s.Names(c, world) {
				n := int64(7 * (round + i) % 11 * 900)
				operations = append(operations, Operation{
					Collective: c, DType: plugin.Int32, Algorithm: name, Count: n, Counts: []int64{n, 0, n / 2},
					Matrix: [][]int64{{n, 1, 2}, {0, n, 0}, {n, n, 0}}, Root: round % world, Peer: (round + 1) % world,
				})
			}
		}
	}
	offsets := words(world)
	last := make([][]int64, world)
	for r := range last {
		last[r] = make([]int64, len(offsets))
	}
	err := w.Run(operations, func(rank, index int) {
		for i, v := range w.Words(region, rank, offsets) {
			if v < last[rank][i] {
				t.Errorf("before operation %d (%s) the word at %d of rank %d fell from %d to %d", index, &operations[index],
					offsets[i], rank, last[rank][i], v)
			}
			last[rank][i] = v
		}
	})
	if err != nil {
		t.Error(err)
	}
}
