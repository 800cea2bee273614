package diagnosis

import (
	"fmt"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

// Different collectives in the same place are always reported. Every collective is hashed together with all
// before it, which gives its mark (executor.Mark). Marks travel behind the semaphores that the ranks wait for anyway,
// so a rank that meets the signal of another call stops before it has touched what that call put there. And each rank
// keeps its latest calls where its peers can look: a rank that waits for long does, the watchdog does every quarter of
// a second, and the words of the error come from there.
//
// A mark covers what all ranks must say alike (call.Identity). What they say of each pair, in all_to_all_v, gather_v
// and scatter_v, is compared as the lengths of messages are. Which algorithm runs follows from the same arguments by a
// choice that the ranks have compared when they prepared it, so it needs no place in the mark.

// Disagreement returns an error if this rank and another are known to have called differently.
func (o *Observer) Disagreement() *plugin.Error {
	for rank := range o.World {
		if reason := o.disagreementWith(rank); reason != nil {
			return reason
		}
	}
	return nil
}

// Contradicts reports whether a peer says that it has called another collective than the one that mark stands for.
func (o *Observer) Contradicts(mark executor.Mark) bool {
	for rank := range o.World {
		if o.Engine.Contradicts(rank, mark) {
			return true
		}
	}
	return false
}

// disagreementWith returns an error that names the calls of this rank and another if they differ, in the same words on
// both; nil if nothing is known.
func (o *Observer) disagreementWith(rank int) *plugin.Error {
	d, found := o.Engine.Disagreement(rank, o.State(o.Rank).Seq)
	if !found {
		return nil
	}
	mine, theirs := stateOf(d.Mine), stateOf(d.Theirs)
	if mine.Collective == theirs.Collective && mine.Collective.Varying() {
		if reason := o.WrongLength(); reason != nil {
			return reason
		}
	}
	return &plugin.Error{Code: plugin.Mismatch, Rank: rank,
		Message: Disagree(o.Rank, mine, rank, theirs) + o.rejections(contradiction)}
}

// contradiction returns an error if a rank's calls, or else any rank's, are known to contradict this one's.
func (o *Observer) contradiction(rank int) *plugin.Error {
	if rank >= 0 {
		if reason := o.disagreementWith(rank); reason != nil {
			return reason
		}
	}
	return o.Disagreement()
}

// disagreed returns the error of a run that has stopped at a signal of another call: of the rank that it waited for, or
// else of any.
func (o *Observer) disagreed(rank int) *plugin.Error {
	if reason := o.contradiction(rank); reason != nil {
		return reason
	}
	who := "a rank"
	if rank >= 0 {
		who = o.PeerName(rank)
	}
	return &plugin.Error{Code: plugin.Mismatch, Rank: max(rank, 0), Message: "ranks disagree: " +
		who + fmt.Sprintf(" has called another collective than rank %d, longer ago than is remembered", o.Rank)}
}

// Conflict returns an error if a peer's latest call contradicts this rank's.
func (o *Observer) Conflict() *plugin.Error {
	mine := o.State(o.Rank)
	for rank := range o.World {
		if rank == o.Rank {
			continue
		}
		if conflict := Conflict(o.Rank, mine, rank, o.State(rank)); conflict != "" {
			return o.Mismatch(rank, conflict)
		}
	}
	return nil
}

// Mismatch returns an error about a rank's call, with what ranks have rejected that may explain it.
func (o *Observer) Mismatch(rank int, text string) *plugin.Error {
	return &plugin.Error{Code: plugin.Mismatch, Rank: rank, Message: text + o.rejections(contradiction)}
}

// Deserted returns the error of a call that waits for a rank that has closed the communicator.
func (o *Observer) Deserted(peer int) *plugin.Error {
	e := o.Mismatch(peer, fmt.Sprintf("%s has closed the communicator while rank %d waits for it", o.PeerName(peer), o.Rank))
	e.Code = plugin.Closed
	return e
}
