package host

import (
	"context"
	"fmt"

	"github.com/shunt-ccl/shunt/host/internal/regroup"
	"github.com/shunt-ccl/shunt/plugin"
)

// Shrink makes a new communicator of the ranks that are still there, after a failure of this one. Every survivor calls
// it; the old communicator is then only good for Close. Ranks keep their order, and plugins whose process has died are
// started again. If a rank or a plugin dies meanwhile, all survivors try again, because of plugins alone three times in
// a row; if one fails otherwise, or its context ends, all return an error.
func (c *Communicator) Shrink(ctx context.Context) (made *Communicator, err error) {
	defer noteContext(ctx, &err)
	if err := c.closed("shrink"); err != nil {
		return nil, err
	}
	ctx, cancel := c.observer.Deadline(ctx)
	defer cancel()
	next := func() string { return fmt.Sprintf("%s-%d", c.Label(), c.counters.Next("shrink")) }
	label := next()
	left, err := c.group.Survivors(ctx, "shrink ("+label+")")
	var attempts regroup.Attempts
	for err == nil {
		before := len(left)
		comm, mine := c.of(ctx, "shrink", label, left)
		// One event may be a different error on each rank, so they decide together whether to try again.
		var all [][]byte
		left, all, err = c.group.GatherSurvivors(ctx, "end their shrink ("+label+")", regroup.Attempt(ctx, c.Rank(), mine))
		again := false
		if err == nil {
			again, err = attempts.Again(all, len(left) < before)
		}
		if err == nil && !again {
			return comm, nil
		}
		if mine == nil {
			_ = comm.Close() // others do without it
		}
		if err != nil { // on every rank: all count their attempts alike
			if plugin.CodeOf(err) == plugin.CodeOf(mine) {
				return nil, mine
			}
			if mine != nil {
				err = fmt.Errorf("%w; here: %w", err, mine)
			}
			break
		}
		label = next()
	}
	return nil, plugin.Errorf(plugin.CodeOf(err), "shrink on rank %d: %w", c.Rank(), err)
}
