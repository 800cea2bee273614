package plans

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/host/selector"
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

// choiceOf lists what a signature's calls will run.
func choiceOf(key call.Signature, c *selector.Choice) choice {
	return choice{key.Collective.String() + " of " + key.DType.String(), c.String(), c.Offers()}
}

// sameChoices returns the part in which ranks compare what they have prepared for signatures without an agreement.
func (pl *Planner) sameChoices(keys []call.Signature) round.Part {
	var mine []choice
	for _, key := range keys {
		if p := pl.cache.lookup(key); p != nil { // else the ranks agree on an error
			mine = append(mine, choiceOf(key, p.choice))
		}
	}
	return round.Part{Mine: encode(mine), Hear: func(answers [][]byte) error {
		all := make([][]choice, len(answers))
		for rank, answer := range answers {
			if err := json.Unmarshal(answer, &all[rank]); err != nil {
				return plugin.Errorf(plugin.Protocol, "rank %d sent a malformed list of choices: %w", rank, err)
			}
		}
		return compareChoices(all)
	}}
}

// compareChoices returns an error if two ranks choose differently for a call.
func compareChoices(all [][]choice) error {
	for rank := range all {
		if len(all[rank]) != len(all[0]) {
			return plugin.Errorf(plugin.Protocol, "rank %d sent %d choices, want %d", rank, len(all[rank]), len(all[0]))
		}
	}
	for i := range all[0] {
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
