package host

import (
	"context"
	"fmt"

	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/plugin"
)

// mostRevivals bounds how often Shrink tries again because plugins die: one may die whenever it is used.
const mostRevivals = 3

// Shrink makes a new communicator of the ranks that are still there, after a peer's death, a plugin's, or an abort.
// Every survivor calls it; the old communicator is then only good for Close. Ranks keep their order, and plugins whose
// process has died are started again. If a rank or a plugin dies meanwhile, all survivors try again, because of plugins
// alone three times in a row; if one fails otherwise, or its context ends, all return an error.
func (c *Communicator) Shrink(ctx context.Context) (*Communicator, error) {
	if err := c.closed("shrink"); err != nil {
		return nil, err
	}
	ctx, cancel := c.observer.Deadline(ctx)
	defer cancel()
	label := fmt.Sprintf("%s-%d", c.label, c.shrinks.Add(1))
	left, err := c.group.Survivors(ctx, "shrink ("+label+")")
	revivals := 0 // attempts in which no rank has died; all count them alike
	for err == nil {
		ranks := make([]int, len(left))
		for i, rank := range left {
			ranks[i] = c.member.Ranks[rank]
		}
		comm, mine := newCommunicator(ctx, c.job, "shrink", label, ranks)
		mine = c.sayWhose(mine, left)
		// One event may be a different error on each rank, so they decide together whether to try again.
		var all [][]byte
		left, all, err = c.group.GatherSurvivors(ctx, "end their shrink ("+label+")", attemptOf(ctx, c.rank, mine).encode())
		again := false
		if err == nil {
			died := len(left) < len(ranks)
			if died {
				revivals = 0
			}
			again, err = tryAgain(all, died, revivals < mostRevivals)
			revivals++
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
		label = fmt.Sprintf("%s-%d", c.label, c.shrinks.Add(1))
	}
	return nil, plugin.Errorf(plugin.CodeOf(err), "shrink on rank %d: %w", c.rank, err)
}

// attempt says what became of a rank's attempt to make a smaller communicator.
type attempt struct {
	err  *plugin.Error // nil: it has one
	last bool          // it may not try again
}

func attemptOf(ctx context.Context, rank int, err error) attempt {
	switch {
	case err == nil:
		return attempt{}
	case ctx.Err() != nil:
		return attempt{&plugin.Error{Code: plugin.CodeOf(ctx.Err()), Rank: rank,
			Message: fmt.Sprintf("rank %d gave up: %v", rank, err)}, true}
	}
	return attempt{err: &plugin.Error{Code: plugin.CodeOf(err), Rank: rank, Message: err.Error()}}
}

func (a attempt) encode() []byte {
	var w wire.Writer
	w.Bool(a.last)
	w.Error(a.err)
	return w.B
}

// tryAgain says what all survivors do after an attempt of each. They try again after a rank's death, and if revive is
// set after a plugin's, as what else went wrong may come of it. Otherwise they return the error, if there is one: not
// that a rank has closed, where another says why.
func tryAgain(all [][]byte, died, revive bool) (bool, error) {
	var failed, last error
	for _, b := range all {
		r := wire.NewReader(b)
		a := attempt{last: r.Bool(), err: r.Error()}
		if err := r.End(); err != nil {
			return false, err
		}
		if a.err == nil {
			continue
		}
		if failed == nil || plugin.CodeOf(failed) == plugin.Closed && a.err.Code != plugin.Closed {
			failed = a.err
		}
		if a.last && last == nil {
			last = a.err
		}
		died = died || a.err.Code == plugin.PeerDied || a.err.Code == plugin.PluginDied && revive
	}
	switch {
	case last != nil:
		return false, last
	case died:
		return true, nil
	}
	return false, failed
}
