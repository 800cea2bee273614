package records

import (
	"cmp"
	"slices"

	"github.com/shunt-ccl/shunt/host/report"
)

// Summary sums up the files of the communicators that failed.
type Summary struct {
	Communicators []Communicator `json:"communicators"`
	Skipped       []Skipped      `json:"skipped,omitempty"`
}

// Skipped is a file that is no report.
type Skipped struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// Communicator sums up the end of one.
type Communicator struct {
	Label   string  `json:"communicator"`
	Job     string  `json:"job"`
	World   int     `json:"world"`
	Causes  []Cause `json:"causes"`            // what most ranks say first
	Groups  []Group `json:"groups"`            // the furthest behind first
	Missing []int   `json:"missing,omitempty"` // ranks of which there is no file
}

// Cause is the reason of the failure for some ranks.
type Cause struct {
	Code    string `json:"code,omitempty"`    // "": it had not failed
	Failure string `json:"failure,omitempty"` // what most of these ranks say, or the first of them
	Ranks   []int  `json:"ranks"`             // ascending, as all ranks here
}

// Group is the ranks that made the same call last.
type Group struct {
	Call    *report.Call `json:"call,omitempty"`   // nil: they have called nothing
	Behind  uint64       `json:"behind,omitempty"` // collectives that another rank has called, and they have not
	Members []Member     `json:"members"`

	waits bool // for a message of a rank that is behind itself, or of which there is no file
}

// Member is a rank and where it ran.
type Member struct {
	Rank int    `json:"rank"`
	PID  int    `json:"pid"`
	Host string `json:"host"`
}

// number returns the number of the group's call, 0 if it was in none.
func (g *Group) number() uint64 {
	if g.Call == nil {
		return 0
	}
	return g.Call.Number
}

// ranks returns the ranks of the group.
func (g *Group) ranks() []int {
	ranks := make([]int, len(g.Members))
	for i, m := range g.Members {
		ranks[i] = m.Rank
	}
	return ranks
}

// Summarize puts reports together: those of one communicator, and of ranks in the
// same call. Communicators with a rank in a call, or behind, come first.
// Of several reports of one rank the last counts.
func Summarize(heads []report.Head) []Communicator {
	type identity struct {
		label, job string
		world      int
	}
	found := map[identity]map[int]report.Head{}
	for _, h := range heads {
		id := identity{h.Communicator, h.Job, h.World}
		if found[id] == nil {
			found[id] = map[int]report.Head{}
		}
		found[id][h.Rank] = h
	}
	var all []Communicator
	for id, reports := range found {
		c := Communicator{Label: id.label, Job: id.job, World: id.world}
		var there []report.Head
		for rank := range id.world {
			if h, ok := reports[rank]; ok {
				there = append(there, h)
			} else {
				c.Missing = append(c.Missing, rank)
			}
		}
		c.Causes, c.Groups = causes(there), groups(there)
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Communicator) int {
		return cmp.Or(cmp.Compare(a.idle(), b.idle()), cmp.Compare(a.Label, b.Label), cmp.Compare(a.Job, b.Job),
			cmp.Compare(a.World, b.World))
	})
	return all
}

// idle returns 1 if no rank was in a call or behind when it failed.
func (c *Communicator) idle() int {
	if slices.ContainsFunc(c.Groups, func(g Group) bool {
		return g.Behind > 0 ||
			(g.Call != nil && g.Call.State == report.Called)
	}) {
		return 0
	}
	return 1
}

// causes groups reports, which are ordered by rank, by the code of the failure.
// Ranks that find the same by themselves word it each in their own way.
func causes(reports []report.Head) []Cause {
	var all []Cause
	said := map[string]int{} // how many ranks say a text
	for _, h := range reports {
		said[h.Failure]++
		i := slices.IndexFunc(all, func(c Cause) bool { return c.Code == h.Code })
		if i < 0 {
			i = len(all)
			all = append(all, Cause{Code: h.Code, Failure: h.Failure})
		}
		all[i].Ranks = append(all[i].Ranks, h.Rank)
	}
	for _, h := range reports {
		i := slices.IndexFunc(all, func(c Cause) bool { return c.Code == h.Code })
		if said[h.Failure] > said[all[i].Failure] {
			all[i].Failure = h.Failure
		}
	}
	slices.SortStableFunc(all, func(a, b Cause) int { return cmp.Compare(len(b.Ranks), len(a.Ranks)) })
	return all
}

// waits says whether a call is a message that waits, perhaps by way of other ranks' messages, for a rank that has not
// come as far as the furthest and waits for no message, or of which there is no file. of has all ranks' calls.
func waits(call *report.Call, of map[int]*report.Call, furthest uint64) bool {
	for range len(of) { // else ranks wait for each other in a circle
		if call == nil || call.Peer == nil || call.State != report.Called {
			return false
		}
		next, known := of[*call.Peer]
		if !known {
			return true
		}
		if next == nil || next.Peer == nil || next.State != report.Called {
			return next == nil || next.Number < furthest
		}
		call = next
	}
	return false
}

// groups groups reports, which are ordered by rank, by the last call.
func groups(reports []report.Head) []Group {
	var all []Group
	type place struct {
		call report.Call
		peer int
	}
	at, of := map[place]int{}, map[int]*report.Call{}
	furthest := uint64(0)
	for _, h := range reports {
		p := place{peer: -1}
		if h.Last != nil {
			p.call, p.call.Peer = *h.Last, nil
			if h.Last.Peer != nil {
				p.peer = *h.Last.Peer
			}
		}
		i, ok := at[p]
		if !ok {
			i = len(all)
			at[p] = i
			all = append(all, Group{Call: h.Last})
		}
		all[i].Members = append(all[i].Members, Member{h.Rank, h.PID, h.Host})
		of[h.Rank] = h.Last
		furthest = max(furthest, p.call.Number)
	}
	for i := range all {
		all[i].Behind = furthest - all[i].number()
		all[i].waits = waits(all[i].Call, of, furthest)
	}
	slices.SortStableFunc(all, func(a, b Group) int { return cmp.Compare(a.number(), b.number()) })
	return all
}
