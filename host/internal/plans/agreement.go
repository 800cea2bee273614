package plans

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/plugin"
)

// Ranks compare what they call when a signature is first prepared, and whenever SHUNT_CHECK asks for it.

// callInfo describes a rank's call when a signature is first prepared. The ranks compare it before any of them
// continues.
type callInfo struct {
	Seq        uint64
	Collective plugin.Collective
	DType      plugin.DType
	Op         plugin.Op
	Size       int64 // -1 where ranks may differ
	Root       int   // -1 where there is none
	Symmetric  bool
	OnDevice   bool // the counts
	Counts     call.Counts
	Choice     string            // of algorithms, by size
	Offers     map[string]string // what it was made of, by transport
	Published  published         // by its endpoints, for plans that are to be prepared
	failure
}

func (a callInfo) String() string {
	text := a.Collective.String()
	if a.Size >= 0 {
		text += fmt.Sprintf(", count %d", a.Size/a.DType.Bytes())
	}
	text += " of " + a.DType.String()
	if a.Collective.Reduces() {
		text += ", op " + a.Op.String()
	}
	if a.Root >= 0 {
		text += fmt.Sprintf(", root %d", a.Root)
	}
	if a.Symmetric {
		text += ", symmetric"
	}
	if a.OnDevice {
		text += ", counts on the device"
	}
	return text
}

// callInfo returns the description of this rank's collective of that number.
func (pl *Planner) callInfo(number uint64, call *call.Call) callInfo {
	mine := callInfo{Seq: number, Collective: call.Collective, DType: call.DType, Op: call.Op, Size: call.Size, Root: -1,
		Symmetric: call.Symmetric, OnDevice: call.OnDevice, Counts: call.Counts(pl.World)}
	switch call.Collective {
	case plugin.AllToAllV, plugin.GatherV, plugin.ScatterV:
		mine.Size = -1
	}
	if call.Collective.Rooted() {
		mine.Root = call.Root
	}
	return mine
}

// compare gathers what every rank asked for, and returns what it has published for so many items, by rank and item. All
// ranks return the same, because all compare the same.
func (pl *Planner) compare(ctx context.Context, mine callInfo, items int) ([][][]byte, error) {
	what := mine.Collective.String()
	pl.agreements++
	tag := fmt.Sprintf("agree on a call (%s %d)", pl.Label, pl.agreements)
	ctx, cancel := pl.Deadline(ctx)
	defer cancel()
	stall := pl.Stall
	if len(pl.Topology.Hosts()) > 1 { // ranks that have come must be known to have
		stall += pl.News
	}
	absent := time.AfterFunc(stall, func() { pl.WarnAbsent(mine.Seq, mine.Collective, stall) })
	defer absent.Stop()
	answers, err := round.Gather(ctx, pl.Group, pl.World, tag, encode(mine))
	if err != nil {
		err = pl.WrapError(what, err)
		var reason *plugin.Error
		if errors.As(err, &reason) {
			pl.Fail(reason, true)
			pl.Failure.Wait()
		}
		return nil, err
	}
	ranks := make([]callInfo, len(answers))
	all := make([]call.Counts, len(answers))
	first := &ranks[0]
	for rank, answer := range answers {
		a := &ranks[rank]
		if err := json.Unmarshal(answer, a); err != nil {
			return nil, plugin.Errorf(plugin.Protocol, "%s: rank %d sent a malformed request: %w", what, rank, err)
		}
		if a.Collective != first.Collective || a.DType != first.DType || a.Op != first.Op || a.Size != first.Size ||
			a.Root != first.Root || a.Symmetric != first.Symmetric || a.OnDevice != first.OnDevice || a.Seq != first.Seq {
			reason := pl.Mismatch(rank, fmt.Sprintf("ranks disagree: rank 0 called #%d %s; rank %d called #%d %s", first.Seq,
				first, rank, a.Seq, a))
			pl.Fail(reason, false)
			return nil, pl.FailureError(what, reason)
		}
		all[rank] = a.Counts
	}
	if rank, text := call.DifferentCounts(mine.Collective, all); text != "" {
		reason := &plugin.Error{Code: plugin.Mismatch, Rank: rank,
			Message: fmt.Sprintf("ranks disagree about #%d %s: %s", first.Seq, first, text)}
		pl.Fail(reason, false)
		return nil, pl.FailureError(what, reason)
	}
	choices := make([]choice, len(answers))
	for rank, a := range ranks {
		if a.Code != plugin.OK {
			reason := a.of(rank)
			if a.Code == plugin.Timeout || a.Code == plugin.PluginDied { // a transport that is stuck stays so
				pl.Fail(reason, false)
				return nil, pl.FailureError(what, reason)
			}
			return nil, pl.WrapError(what, reason)
		}
		choices[rank] = choice{mine.String(), a.Choice, a.Offers}
	}
	if reason := unlikeChoices(choices); reason != nil {
		pl.Fail(reason, false)
		return nil, pl.FailureError(what, reason)
	}
	published := make([][][]byte, len(ranks))
	for rank := range ranks {
		if published[rank], err = ranks[rank].Published.get(rank, items); err != nil {
			return nil, err
		}
	}
	return published, nil
}

// Compare compares a collective, of that number, with what all ranks call, for SHUNT_CHECK.
func (pl *Planner) Compare(ctx context.Context, number uint64, call *call.Call) error {
	_, err := pl.compare(ctx, pl.callInfo(number, call), 0)
	return err
}
