package plans

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/shunt-ccl/shunt/plugin"
)

// Ranks that choose different algorithms for one call would wait for each other in
// different places. What they choose follows from what transports offer, which is
// the same on all ranks unless one's Supports fails there, or looks at what only
// that rank sees. So ranks compare their choices when they prepare a plan, and
// the error names the rank that differs, with the transport.

// choice lists the algorithms that a rank will run for a call.
type choice struct {
	Call   string            // in words
	Choice string            // selector.Choice's
	Offers map[string]string // by transport
}

// unlikeChoices returns an error if two ranks choose differently.
func unlikeChoices(all []choice) *plugin.Error {
	first := all[0]
	for rank, other := range all {
		if other.Choice == first.Choice {
			continue
		}
		reason := &plugin.Error{Code: plugin.Mismatch, Rank: rank,
			Message: fmt.Sprintf("ranks choose different algorithms for %s: rank 0 %s; rank %d %s", first.Call, first.Choice,
				rank, other.Choice)}
		names := slices.Sorted(maps.Keys(first.Offers))
		for name := range other.Offers {
			if _, known := first.Offers[name]; !known {
				names = append(names, name)
			}
		}
		for _, name := range names {
			if a, b := offerOf(first, name), offerOf(other, name); a != b {
				reason.Message += fmt.Sprintf("; transport %s offers rank 0 %s, and rank %d %s", name, a, rank, b)
			}
		}
		return reason
	}
	return nil
}

func offerOf(c choice, transport string) string {
	if offer := c.Offers[transport]; offer != "" {
		return offer
	}
	return "nothing"
}

// CompareChoices compares what ranks have prepared without an agreement.
func (pl *Planner) CompareChoices(ctx context.Context, tag string) error {
	var mine []choice
	pl.cache.mu.Lock()
	for key, p := range pl.cache.known {
		mine = append(mine, choice{key.Collective.String() + " of " + key.DType.String(), p.choice.String(),
			p.choice.Offers()})
	}
	pl.cache.mu.Unlock()
	slices.SortFunc(mine, func(a, b choice) int { return cmp.Compare(a.Call, b.Call) })
	payload, err := json.Marshal(mine)
	if err != nil {
		return plugin.Errorf(plugin.Internal, "%w", err)
	}
	answers, err := pl.Group.AllGather(ctx, tag, payload)
	if err != nil {
		return err
	}
	all := make([][]choice, len(answers))
	for rank, answer := range answers {
		if err := json.Unmarshal(answer, &all[rank]); err != nil {
			return plugin.Errorf(plugin.Protocol, "rank %d sent a malformed list of choices: %w", rank, err)
		}
		if len(all[rank]) != len(mine) {
			return plugin.Errorf(plugin.Protocol, "rank %d sent %d choices, want %d", rank, len(all[rank]), len(mine))
		}
	}
	for i := range mine {
		of := make([]choice, len(all))
		for rank := range all {
			of[rank] = all[rank][i]
		}
		if reason := unlikeChoices(of); reason != nil {
			return reason
		}
	}
	return nil
}
