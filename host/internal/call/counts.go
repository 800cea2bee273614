package call

import (
	"fmt"

	"github.com/shunt-ccl/shunt/plugin"
)

// maxCompared is the largest world whose ranks tell each other their counts when they compare calls. It keeps what all
// ranks send together below 1 MiB.
const maxCompared = 128

// Counts are the bytes that a rank gives to every rank and expects from every rank, in a collective whose ranks see
// different counts. They are empty for other collectives, and in worlds of more than maxCompared ranks.
type Counts struct {
	Gives   []int64 `json:",omitempty"`
	Expects []int64 `json:",omitempty"`
}

// Counts returns the counts of a call, whose arrays they share. In all_gather_v and reduce_scatter_v, whose counts
// are equal on all ranks, rank r gives or gets block r, which the others expect or give.
func (call *Call) Counts(world int) Counts {
	if call.Arrays == nil || call.OnDevice || world > maxCompared {
		return Counts{}
	}
	gives, expects := call.Arrays[:world], call.Arrays[2*world:3*world]
	switch call.Collective {
	case plugin.AllToAllV, plugin.GatherV, plugin.ScatterV:
		return Counts{Gives: gives, Expects: expects}
	case plugin.AllGatherV:
		return Counts{Expects: expects}
	case plugin.ReduceScatterV:
		return Counts{Gives: gives}
	}
	return Counts{}
}

// DifferentCounts says in words which two ranks differ about a count of a collective, and returns the second of them.
// The text is empty if none do. Ranks that sent no counts are not compared.
func DifferentCounts(collective plugin.Collective, all []Counts) (rank int, text string) {
	complete := func(of []int64) bool { return len(of) == len(all) }
	for r := range all {
		for peer := range r {
			a, b := all[peer], all[r]
			switch collective {
			case plugin.AllToAllV, plugin.GatherV, plugin.ScatterV:
				if complete(a.Gives) && complete(b.Expects) && a.Gives[r] != b.Expects[peer] {
					return r, fmt.Sprintf("rank %d sends %d bytes to rank %d, which expects %d", peer, a.Gives[r], r, b.Expects[peer])
				}
				if complete(b.Gives) && complete(a.Expects) && b.Gives[peer] != a.Expects[r] {
					return r, fmt.Sprintf("rank %d sends %d bytes to rank %d, which expects %d", r, b.Gives[peer], peer, a.Expects[r])
				}
			case plugin.AllGatherV, plugin.ReduceScatterV:
				ours, theirs := a.Expects, b.Expects
				if collective == plugin.ReduceScatterV {
					ours, theirs = a.Gives, b.Gives
				}
				if !complete(ours) || !complete(theirs) {
					continue
				}
				for block, n := range ours {
					if n != theirs[block] {
						return r, fmt.Sprintf("block %d has %d bytes on rank %d and %d on rank %d", block, n, peer, theirs[block], r)
					}
				}
			}
		}
	}
	return 0, ""
}
