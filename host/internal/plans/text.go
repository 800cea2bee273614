package plans

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/plugin"
)

// planText is one rank's text of the plan that a call would run.
type planText struct {
	Call string // in words
	Text string
	failure
}

// Texts returns the plan of each rank, by rank, that a call of a signature and size
// would run. It is collective: every rank prepares its plan, and nothing is kept for
// calls. All ranks return the same error.
func (pl *Planner) Texts(ctx context.Context, key call.Signature, bytes int64) ([]string, error) {
	ctx, cancel := pl.Deadline(ctx)
	defer cancel()
	what := key.Collective.String()
	mine := planText{Call: fmt.Sprintf("%s of %s, %d bytes", what, key.DType, bytes)}
	if key.Collective.Reduces() {
		mine.Call += ", op " + key.Op.String()
	}
	text, agreed, err := pl.text(ctx, key, bytes)
	if agreed {
		return nil, pl.WrapError(what, err)
	}
	mine.Text = text
	mine.fail(err)
	payload, err := json.Marshal(mine)
	if err != nil {
		return nil, plugin.Errorf(plugin.Internal, "%s: %w", what, err)
	}
	pl.agreements++
	answers, err := pl.Group.AllGather(ctx, fmt.Sprintf("show their plans (%s %d)", pl.Label, pl.agreements), payload)
	pl.heard()
	if err != nil {
		return nil, pl.WrapError(what, err)
	}
	all := make([]planText, len(answers))
	for rank, answer := range answers {
		if err := json.Unmarshal(answer, &all[rank]); err != nil {
			return nil, plugin.Errorf(plugin.Protocol, "%s: rank %d sent a malformed plan: %w", what, rank, err)
		}
	}
	texts := make([]string, len(all))
	for rank, theirs := range all {
		if theirs.Call != all[0].Call {
			return nil, &plugin.Error{Code: plugin.Mismatch, Rank: rank,
				Message: fmt.Sprintf("ranks ask for different plans: rank 0 for %s, rank %d for %s", all[0].Call, rank,
					theirs.Call)}
		}
		if theirs.Code != plugin.OK {
			return nil, pl.WrapError(what, theirs.of(rank))
		}
		texts[rank] = theirs.Text
	}
	return texts, nil
}

// text returns this rank's plan, or why there is none, which is every rank's error if they have agreed on it.
func (pl *Planner) text(ctx context.Context, key call.Signature, bytes int64) (text string, agreed bool, err error) {
	p, err := pl.choose(ctx, key)
	var list []int
	if err == nil {
		if i := p.choice.Pick(bytes); i < 0 {
			err = p.choice.Unsupported(bytes)
		} else {
			list = []int{i}
		}
	}
	if slices.ContainsFunc(pl.Transports, (*Transport).exchanges) { // whatever a rank asks for
		agreed, err = pl.exchangeForPlans(ctx, []wanted{{key, p, list}}, err)
	}
	if err != nil {
		return "", agreed, err
	}
	ctx, cancel := TransportTime(ctx)
	defer cancel()
	plan, err := pl.prepare(ctx, key, p.choice.Candidates()[list[0]])
	if err != nil {
		return "", false, err
	}
	return plan.Text(), false, nil
}
