package selector

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

// Explanation says what a call of one size runs, and why nothing else.
type Explanation struct {
	Collective string  `json:"collective"`
	DType      string  `json:"dtype"`
	Op         string  `json:"op,omitempty"`
	World      int     `json:"world"`
	Hosts      int     `json:"hosts"`
	Memory     string  `json:"memory"`
	Symmetric  bool    `json:"symmetric,omitempty"`
	Topology   string  `json:"topology,omitempty"` // its class
	Mode       Mode    `json:"mode,omitempty"`     // whose costs decide, on GPUs
	Bytes      int64   `json:"bytes"`
	From       int64   `json:"from"` // the choice is the same from here …
	To         int64   `json:"to"`   // … to here, both included; MaxInt64 means without end
	Chosen     string  `json:"chosen,omitempty"`
	Why        string  `json:"why"`
	Clause     string  `json:"clause,omitempty"` // of SHUNT_ALGO that decided
	Cost       float64 `json:"cost_us,omitempty"`
	// OwnNumerics: results of what was chosen are not always those of the tables; see plugin.Numerics
	OwnNumerics bool          `json:"own_numerics,omitempty"`
	Source      string        `json:"source,omitempty"`   // of the cost: estimate, measured or built in
	Fallback    []Alternative `json:"fallback,omitempty"` // what could run instead, cheapest first
	Rejected    []Rejection   `json:"rejected,omitempty"`
}

// Alternative is an algorithm that could run too.
type Alternative struct {
	Name   string  `json:"name"`
	Cost   float64 `json:"cost_us"`
	Source string  `json:"source"`
	Why    string  `json:"why"` // not chosen

	// Barred: it is never chosen here for its numerics, as SHUNT_NUMERICS is, though SHUNT_ALGO may name it.
	Barred bool `json:"-"`

	numerics plugin.Numerics
}

// Rejection is an algorithm or a transport that cannot run.
type Rejection struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Limits bool   `json:"limits,omitempty"` // an algorithm that takes other sizes of such calls
}

// Explain returns the algorithm that serves a message of the given bytes and why, the
// fallback chain, and for every other algorithm and transport why it cannot.
func (c *Choice) Explain(bytes int64) Explanation {
	e := Explanation{
		Collective: c.request.Collective.String(), DType: c.request.DType.String(), World: c.request.World,
		Hosts: max(c.request.Hosts, 1), Memory: c.request.Memory.String(), Bytes: bytes,
		Symmetric: c.request.Symmetric, Topology: c.topology,
	}
	if c.request.Memory == plugin.MemoryKindCuda {
		e.Mode = c.mode
	}
	if c.request.Collective.Reduces() {
		e.Op = c.request.Op.String()
	}
	for i, last := range c.upTo {
		if bytes <= last {
			e.To = last
			break
		}
		e.From = c.upTo[i] + 1
	}
	clause := c.clauseFor(bytes)
	if clause != nil {
		e.Clause = clause.String()
	}
	size := bytes
	if c.fixed {
		size = nominalBytes
	}
	chosen := c.Pick(bytes)
	_, barred := c.group(size)
	for i, candidate := range c.candidates {
		cost := c.costs[i].cost(size)
		switch {
		case i == chosen:
			e.Chosen, e.Cost, e.Source = candidate.Qualified, round(cost), c.sources[i]
			e.OwnNumerics = candidate.Algorithm.Numerics != plugin.NumericsTables
		case !fits(candidate.Algorithm, size, c.fixed):
			e.Rejected = append(e.Rejected, Rejection{Name: candidate.Qualified, Reason: c.misfit(i, size), Limits: !c.fixed})
		case clause != nil && !clause.allows(candidate):
			e.Rejected = append(e.Rejected, Rejection{Name: candidate.Qualified,
				Reason: fmt.Sprintf("SHUNT_ALGO clause %q does not name it", clause)})
		default:
			e.Fallback = append(e.Fallback, Alternative{Name: candidate.Qualified, Cost: round(cost), Source: c.sources[i],
				numerics: candidate.Algorithm.Numerics, Barred: slices.Contains(barred, i)})
		}
	}
	c.why(&e, clause, chosen, size)
	for _, name := range slices.Sorted(maps.Keys(c.rejections)) {
		e.Rejected = append(e.Rejected, Rejection{Name: name, Reason: c.rejections[name]})
	}
	return e
}

// otherNumerics says why an algorithm is not among those that cost decides between.
var otherNumerics = map[plugin.Numerics]string{
	plugin.NumericsReordered: "adds in its own order, so it runs only where SHUNT_ALGO names it or SHUNT_NUMERICS is reordered or any",
	plugin.NumericsOwn:       "rounds or treats special values in its own way, so it runs only where SHUNT_ALGO names it or SHUNT_NUMERICS is any",
}

// why fills the reasons in words, once chosen and fallback are known.
func (c *Choice) why(e *Explanation, clause *Clause, chosen int, size int64) {
	slices.SortStableFunc(e.Fallback, func(a, b Alternative) int { return cmp.Compare(a.Cost, b.Cost) })
	if chosen < 0 {
		e.Why = "no algorithm can do this"
		return
	}
	cost := c.costs[chosen].cost(size)
	for i := range e.Fallback {
		a := &e.Fallback[i]
		switch {
		case a.Barred:
			a.Why = otherNumerics[a.numerics]
		case a.Cost > round(cost):
			a.Why = fmt.Sprintf("%.2f µs slower", a.Cost-round(cost))
		case a.Cost < round(cost):
			a.Why = "later in SHUNT_ALGO's order"
		default:
			a.Why = "as fast, later in order"
		}
	}
	switch {
	case clause != nil:
		e.Why = fmt.Sprintf("SHUNT_ALGO clause %q", clause)
	case len(e.Fallback) == 0:
		e.Why = "the only one that can do this"
	default:
		e.Why = "cheapest of " + fmt.Sprint(len(e.Fallback)+1)
	}
	if c.fixed {
		e.Why += fmt.Sprintf("; ranks see different sizes, so one algorithm serves all (costs are for %s)",
			FormatSize(nominalBytes))
	}
}

func (c Clause) allows(candidate Candidate) bool {
	for _, name := range c.Names {
		if matches(name, candidate) {
			return true
		}
	}
	return false
}

// misfit says why a candidate's limits exclude a size.
func (c *Choice) misfit(i int, bytes int64) string {
	a := c.candidates[i].Algorithm
	switch {
	case c.fixed:
		return "has size limits, and ranks see different sizes"
	case bytes < a.MinBytes:
		return "takes at least " + FormatSize(a.MinBytes) + " bytes"
	default:
		return "takes at most " + FormatSize(a.MaxBytes) + " bytes"
	}
}

// round keeps costs readable: three decimals of a microsecond.
func round(cost float64) float64 { return math.Round(cost*1000) / 1000 }

// String returns the explanation for a terminal, several lines without a final line
// break.
func (e Explanation) String() string {
	var b strings.Builder
	what := e.Collective + " " + e.DType
	if e.Op != "" {
		what += " " + e.Op
	}
	if e.Symmetric {
		what += ", symmetric"
	}
	fmt.Fprintf(&b, "%s, %s bytes, %s, %s memory", what, FormatSize(e.Bytes), worldText(e.World, e.Hosts), e.Memory)
	if e.Mode != "" {
		fmt.Fprintf(&b, ", %s, %s calls", e.Topology, e.Mode)
	}
	b.WriteByte('\n')
	if e.Chosen == "" {
		fmt.Fprintf(&b, "  none: %s", e.Why)
	} else {
		until := "any larger size"
		if e.To < math.MaxInt64 {
			until = FormatSize(e.To)
		}
		fmt.Fprintf(&b, "  runs %s, %.2f µs (%s): %s; the same from %s to %s", e.Chosen, e.Cost, e.Source, e.Why,
			FormatSize(e.From), until)
	}
	for _, a := range e.Fallback {
		fmt.Fprintf(&b, "\n  else %s, %.2f µs (%s): %s", a.Name, a.Cost, a.Source, a.Why)
	}
	for _, r := range e.Rejected {
		fmt.Fprintf(&b, "\n  not  %s: %s", r.Name, r.Reason)
	}
	return b.String()
}

// Ranges lists the whole choice of a signature, one explanation for each range
// of sizes with the same choice, at the range's first size.
func (c *Choice) Ranges() []Explanation {
	var list []Explanation
	from := int64(0)
	for _, last := range c.upTo {
		list = append(list, c.Explain(from))
		if last < math.MaxInt64 {
			from = last + 1
		}
	}
	return list
}
