package allocator

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/shunt-ccl/shunt/host/internal/buffers"
	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/plugin"
)

// The collective steps of a symmetric allocator. A turn is held for what the ranks exchange, and never while memory is
// made or released.

// step is the contribution of a rank to a collective step.
type step struct {
	What   string // "grow" or "trim"
	Bytes  int64  // of the block that it is for
	Passed []byte // for each free block, whether nothing uses it any more here: 1 or 0
	Failed []byte // why this rank cannot take part, as round.Say encodes it
}

// meet lets the ranks compare what they are about to do, and agree on which free blocks nothing uses any more. Where a
// rank cannot go on, mine says why, and all ranks return that. It returns the step's tag. a.growth is held.
func (a *Allocator) meet(what string, n int64, mine error) (tag string, err error) {
	a.steps++
	tag = fmt.Sprintf("%s step %d", a.label, a.steps)
	snapshot, passed := a.pool.Passed()
	payload, err := json.Marshal(step{what, n, passed, round.Say(a.home.Rank, mine)})
	if err != nil {
		return tag, plugin.Errorf(plugin.Internal, "%w", err)
	}
	var answers [][]byte
	if err := a.together(func(ctx context.Context) (err error) {
		answers, err = a.home.Group.AllGather(ctx, tag, payload)
		return err
	}); err != nil {
		return tag, err
	}
	all := make([]step, len(answers))
	for rank, answer := range answers {
		if err := json.Unmarshal(answer, &all[rank]); err != nil {
			return tag, &plugin.Error{Code: plugin.Protocol, Rank: rank,
				Message: fmt.Sprintf("rank %d sent a malformed step of its allocator", rank)}
		}
	}
	for _, theirs := range all {
		if err := round.Heard(theirs.Failed, a.home.Rank, mine); err != nil {
			return tag, err
		}
	}
	for rank, theirs := range all {
		first := all[0]
		if theirs.What != first.What || theirs.Bytes != first.Bytes || len(theirs.Passed) != len(first.Passed) {
			return tag, &plugin.Error{Code: plugin.Mismatch, Rank: rank,
				Message: fmt.Sprintf("ranks disagree in step %d of a symmetric allocator: rank 0 wants to %s, rank %d to %s; all ranks allocate and free alike, in one order",
					a.steps, first, rank, theirs)}
		}
	}
	for _, theirs := range all { // all name as many blocks as this rank does, whose own step is among them
		for i := range passed {
			passed[i] &= theirs.Passed[i]
		}
	}
	a.pool.Agreed(snapshot, passed)
	return tag, nil
}

// String says what a rank wants.
func (s step) String() string {
	return fmt.Sprintf("%s for %d bytes with %d free blocks", s.What, s.Bytes, len(s.Passed))
}

// together runs a step of the communicator's ranks.
func (a *Allocator) together(f func(context.Context) error) error {
	release, err := a.home.Turn("allocator step")
	if err != nil {
		return err
	}
	defer release()
	if err := a.home.Failed("allocator step"); err != nil {
		return err
	}
	ctx, cancel := a.home.Deadline()
	defer cancel()
	return f(ctx)
}

// agree lets all ranks return the same error. a.growth is held.
func (a *Allocator) agree(tag string, err error) error {
	return a.together(func(ctx context.Context) error { return a.home.Group.Agree(ctx, tag, err) })
}

// growTogether adds a segment for a block of n bytes on every rank, unless a block of that size is there after all.
// failed is why this rank cannot. a.growth is held.
func (a *Allocator) growTogether(n, bytes int64, failed error) error {
	tag, err := a.meet("grow", n, failed)
	if err != nil || a.pool.Fits(n) {
		return err
	}
	size := max(segmentBytes(n), a.segment)
	m, mine := a.make(size)
	err = a.agree(tag+" memory", mine)
	if isOutOfMemory(err) {
		if mine == nil {
			err = a.unmap(m)
		} else {
			err = nil
		}
		if err == nil {
			err = a.shrink(false)
		}
		size = segmentBytes(n)
		if err == nil {
			if m, err = a.make(size); isOutOfMemory(err) {
				err = a.exhausted(bytes, size, err)
			}
		}
		mine = err
		err = a.agree(tag+" memory, again", err)
	}
	var registered *buffers.Range
	if err == nil {
		err = a.together(func(ctx context.Context) (err error) {
			registered, err = a.home.Symmetric.Register(ctx, a.home.Group, a.home.Buffers, m.Address, m.Bytes, true)
			return err
		})
	}
	if err != nil {
		if mine == nil {
			_ = a.unmap(m) // the agreed error matters more
		}
		return err
	}
	a.pool.Add(m, registered)
	return nil
}
