package host

import (
	"fmt"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/watch"
	"github.com/shunt-ccl/shunt/plugin"
)

// Ranks that call different collectives in the same place are told, always. Every
// collective is hashed together with all before it, which gives its mark
// (executor.Mark). Marks travel behind the semaphores that the ranks wait for
// anyway, so whoever meets the signal of another call stops before it has touched
// what that call has put there. And each rank keeps its latest calls where its
// peers can look: who waits for long does, the watchdog does every quarter of a
// second, and it is where the words of the error come from.
//
// A mark covers what all ranks must say alike. What they say of each pair, in
// all_to_all_v, gather_v and scatter_v, is compared as the lengths of messages are.
// Which algorithm runs follows from the same arguments by a choice that the ranks
// have compared when they prepared it, so it needs no place in the mark.

// next numbers the operation that begins, which was identified.
func (c *Communicator) next(call *call.Call) {
	c.seq++
	c.mark = 0
	if call.Collective.PointToPoint() {
		return
	}
	c.collectives++
	if c.world > 1 {
		c.previous, c.hash = c.hash, call.Identity.On(c.hash)
		c.mark = executor.MarkOf(c.collectives, c.hash)
	}
}

// takeBack takes the number back from a collective that has not begun after all, so
// that this rank goes on counting as the others do.
func (c *Communicator) takeBack(collective plugin.Collective) {
	if !collective.PointToPoint() {
		c.collectives--
		c.hash = c.previous
		c.engine.ForgetCall(c.mark)
	}
}

// noteBlocks notes what this rank gives to and expects from each rank, in collectives with a count for each.
func (c *Communicator) noteBlocks(call *call.Call) {
	call.Blocks(c.rank, c.world, func(peer int, sends bool, bytes int64) {
		blocks := c.engine.Received(executor.Block, peer)
		if sends {
			blocks = c.engine.Sent(executor.Block, peer)
		}
		blocks.Note(executor.MessageOf(bytes, call.DType))
		blocks.Begun()
	})
}

// compareCalls looks whether a rank has called another collective than this one,
// and fails the communicator if so. It may be called from any goroutine.
func (c *Communicator) compareCalls() {
	if c.failure.Load() != nil {
		return
	}
	for rank := range c.world {
		if reason := c.disagreement(rank); reason != nil {
			c.fail(reason, true)
			return
		}
	}
}

// disagreement is what this rank and another have called differently, in words that
// are the same on both; nil if nothing is known.
func (c *Communicator) disagreement(rank int) *plugin.Error {
	d, found := c.engine.Disagreement(rank, c.state(c.rank).Seq)
	if !found {
		return nil
	}
	mine, theirs := stateOf(d.Mine), stateOf(d.Theirs)
	if mine.Collective == theirs.Collective && mine.Collective.Varying() {
		if reason := c.contradiction(); reason != nil {
			return reason
		}
	}
	return &plugin.Error{Code: plugin.Mismatch, Rank: rank, Message: watch.Disagree(c.rank, mine, rank, theirs) + c.refusals(quarrel)}
}

// disagreed is why a run has stopped at a signal of another call: of the rank that it
// waited for, or else of any.
func (c *Communicator) disagreed(rank int) *plugin.Error {
	if rank >= 0 {
		if reason := c.disagreement(rank); reason != nil {
			return reason
		}
	}
	for rank := range c.world {
		if reason := c.disagreement(rank); reason != nil {
			return reason
		}
	}
	who := "a rank"
	if rank >= 0 {
		who = c.peerName(rank)
	}
	return &plugin.Error{Code: plugin.Mismatch, Rank: max(rank, 0), Message: "ranks disagree: " + who + fmt.Sprintf(" has called another collective than rank %d, longer ago than is remembered", c.rank)}
}

// compareAfter compares a call that has ended, where nothing in its plan did, with
// what the peers say they have called.
func (c *Communicator) compareAfter() {
	for rank := range c.world {
		if c.engine.Contradicts(rank, c.mark) {
			c.compareCalls()
			return
		}
	}
}
