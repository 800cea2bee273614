package host

import (
	"fmt"

	"github.com/shunt-ccl/shunt/host/executor"
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

// identity is what all ranks must say alike of a call, in the order of its record;
// and a hash of counts that are equal on all ranks.
type identity struct{ what, how, count, counts uint64 }

func (c *Communicator) identify(call *call) {
	op, root, count := plugin.Op(0), 0, call.count
	if call.collective.Reduces() {
		op = call.op
	}
	if call.collective.Rooted() {
		root = call.root
	}
	if call.collective.Varying() || call.deviceCounts {
		count = 0
	}
	counts := uint64(0)
	switch {
	case call.deviceCounts:
	case call.collective == plugin.AllGatherV:
		counts = hashed(call.arrays[2*c.world : 3*c.world])
	case call.collective == plugin.ReduceScatterV:
		counts = hashed(call.arrays[:c.world])
	}
	call.identity = identity{uint64(call.collective) | uint64(call.recordedType())<<32, uint64(op) | uint64(uint32(root))<<32, uint64(count), counts}
}

func hashed(counts []int64) uint64 {
	hash := uint64(0)
	for _, n := range counts {
		hash = identity{count: uint64(n)}.on(hash)
	}
	return hash
}

// on is the hash of a call on top of the hash of those before.
func (i identity) on(hash uint64) uint64 {
	hash = (hash ^ i.what) * 0x9E3779B97F4A7C15
	hash = (hash ^ hash>>32 ^ i.how) * 0xC2B2AE3D27D4EB4F
	hash = (hash ^ hash>>29 ^ i.count ^ i.counts) * 0x165667B19E3779F9
	return hash ^ hash>>32
}

// next numbers the operation that begins, which was identified.
func (c *Communicator) next(call *call) {
	c.seq++
	c.mark = 0
	if call.collective.PointToPoint() {
		return
	}
	c.collectives++
	if c.world > 1 {
		c.previous, c.hash = c.hash, call.identity.on(c.hash)
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

// noteBlocks notes what this rank gives to and expects from each rank, in
// collectives with a count for each.
func (c *Communicator) noteBlocks(call *call) {
	if !call.collective.Varying() {
		return
	}
	gives, expects := call.arrays[:c.world], call.arrays[2*c.world:3*c.world]
	for peer := range c.world {
		if peer == c.rank {
			continue
		}
		toIt, fromIt := peer, peer
		sends, receives := true, true
		switch call.collective {
		case plugin.GatherV:
			sends, receives = call.root == peer, call.root == c.rank
		case plugin.ScatterV:
			sends, receives = call.root == c.rank, call.root == peer
		case plugin.AllGatherV: // every block is its rank's
			gives, toIt = expects, c.rank
		case plugin.ReduceScatterV: // every block is for its rank
			expects, fromIt = gives, c.rank
		}
		if sends {
			noteBlock(c.engine.Sent(executor.Block, peer), gives[toIt], call.dtype)
		}
		if receives {
			noteBlock(c.engine.Received(executor.Block, peer), expects[fromIt], call.dtype)
		}
	}
}

func noteBlock(m *executor.Messages, bytes int64, dtype plugin.DType) {
	m.Note(executor.MessageOf(bytes, dtype))
	m.Begun()
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
