package plans

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/plugin"
)

// absences are the transports that a rank cannot use, by name.
type absences struct {
	Optional bool // its user has named none
	Absent   map[string]absence
}

type absence struct {
	Code    plugin.Code
	Message string
}

// LeaveOut returns the part in which the ranks agree which transports the communicator does without: those that some
// rank says it cannot use. mine is what this rank says, by name. Only Unsupported leaves a transport out, and only if
// no rank's user has named the transports; anything else is every rank's error.
func (pl *Planner) LeaveOut(mine map[string]error, optional bool) round.Part {
	say := absences{optional, map[string]absence{}}
	for name, err := range mine {
		say.Absent[name] = absence{plugin.CodeOf(err), err.Error()}
	}
	return round.Part{Mine: encode(say), Hear: pl.leaveOut}
}

// encode returns what has only strings, numbers and bytes, which always encode, as JSON.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

func (pl *Planner) leaveOut(answers [][]byte) error {
	pl.heard()
	optional := true
	all := make([]absences, len(answers))
	for rank, answer := range answers {
		if err := json.Unmarshal(answer, &all[rank]); err != nil {
			return &plugin.Error{Code: plugin.Protocol, Rank: rank, Cause: err,
				Message: fmt.Sprintf("rank %d sent a malformed list of transports that it cannot use: %v", rank, err)}
		}
		optional = optional && all[rank].Optional
	}
	absent := map[string]string{}
	var late error // of a rank that has waited for another: what failed there says more
	for rank, theirs := range all {
		for _, name := range slices.Sorted(maps.Keys(theirs.Absent)) { // all ranks return the same
			why := theirs.Absent[name]
			if why.Code != plugin.Unsupported || !optional {
				failure := &plugin.Error{Code: why.Code, Rank: rank, Message: fmt.Sprintf("rank %d: %s", rank, why.Message)}
				if why.Code != plugin.Timeout && why.Code != plugin.PeerDied {
					return failure
				}
				if late == nil {
					late = failure
				}
				continue
			}
			if absent[name] == "" {
				absent[name] = fmt.Sprintf("rank %d cannot use it: %s", rank, why.Message)
			}
		}
	}
	if late != nil {
		return late
	}
	for name, reason := range absent {
		pl.Absent[name] = reason
		pl.Logger.Info("transport left out", "communicator", pl.Label, "transport", name, "reason", reason)
	}
	pl.Transports = slices.DeleteFunc(pl.Transports, func(t *Transport) bool { return pl.Absent[t.Name] != "" })
	return nil
}
