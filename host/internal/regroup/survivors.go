package regroup

import (
	"context"
	"fmt"

	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/plugin"
)

// mostRevivals bounds how often survivors try again because plugins die: one may die whenever it is used.
const mostRevivals = 3

// Attempts are those of the survivors of a communicator to make a smaller one. All ranks count them alike.
type Attempts struct{ revivals int } // in which no rank has died

// Attempt returns what a rank tells the others of an attempt, which ended with err on it. It may not try again once its
// context has ended.
func Attempt(ctx context.Context, rank int, err error) []byte {
	var e *plugin.Error
	last := err != nil && ctx.Err() != nil
	switch {
	case last:
		e = &plugin.Error{Code: plugin.CodeOf(ctx.Err()), Rank: rank, Message: fmt.Sprintf("rank %d gave up: %v", rank, err)}
	case err != nil:
		e = &plugin.Error{Code: plugin.CodeOf(err), Rank: rank, Message: err.Error()}
	}
	var w wire.Writer
	w.Bool(last)
	w.Error(e)
	return w.B
}

// Again says what all survivors do after an attempt of each; died says that a rank has, which took part. They try again
// after a rank's death, and after a plugin's a few times in a row, as what else went wrong may come of it. Otherwise
// they return the error, if there is one: not that a rank has closed, where another says why.
func (a *Attempts) Again(all [][]byte, died bool) (bool, error) {
	if died {
		a.revivals = 0
	}
	revive := a.revivals < mostRevivals
	a.revivals++
	var failed, last error
	for _, b := range all {
		r := wire.NewReader(b)
		gaveUp, theirs := r.Bool(), r.Error()
		if err := r.End(); err != nil {
			return false, err
		}
		if theirs == nil {
			continue
		}
		if failed == nil || plugin.CodeOf(failed) == plugin.Closed && theirs.Code != plugin.Closed {
			failed = theirs
		}
		if gaveUp && last == nil {
			last = theirs
		}
		died = died || theirs.Code == plugin.PeerDied || theirs.Code == plugin.PluginDied && revive
	}
	switch {
	case last != nil:
		return false, last
	case died:
		return true, nil
	}
	return false, failed
}
