// Package selector chooses, for every call, which transport and algorithm
// runs it, and can say why. Compile turns one signature's candidates, with
// their static or measured costs and the user's override, into a Choice: a
// short list of size ranges that Pick walks in a few nanoseconds.
//
// The selector is pure: equal inputs give equal choices on every rank, and
// nothing in it looks at one rank's own facts. It prepares no plan, talks to
// no peer and knows no transport; where an override or a tuning file comes from
// is the caller's business. Ranks compare Override.Digest and Costs.Digest, and all take
// rank 0's Costs.
package selector

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/shunt-ccl/shunt/internal/nearest"
	"github.com/shunt-ccl/shunt/plugin"
)

// Candidate is one algorithm of one endpoint that could serve a signature.
type Candidate struct {
	Transport string           // name of the transport
	Endpoint  int              // the caller's number; not looked at here
	Algorithm plugin.Algorithm // limits and static cost
	Qualified string           // transport/algorithm, as in SHUNT_ALGO: shm/one_shot
}

// Table is the basis of one communicator's choices. It is immutable and safe for
// concurrent use.
type Table struct {
	override Override
	costs    Costs
	digest   string // of the costs
	topology string // class of the communicator's
}

// Setting is an option of New.
type Setting func(*Table)

// WithOverride makes the user's SHUNT_ALGO win over costs.
func WithOverride(o Override) Setting { return func(t *Table) { t.override = o } }

// WithCosts makes measured costs replace the transports' own estimates.
func WithCosts(c Costs) Setting { return func(t *Table) { t.costs = c } }

// New makes a table. Without settings the transports' own estimates decide.
func New(settings ...Setting) *Table {
	t := &Table{}
	for _, set := range settings {
		set(t)
	}
	t.digest = t.costs.Digest()
	return t
}

// Override returns what wins over costs.
func (t *Table) Override() Override { return t.override }

// Costs returns the measured costs.
func (t *Table) Costs() Costs { return t.costs }

// Digest returns Costs.Digest; it is computed once.
func (t *Table) Digest() string { return t.digest }

// On returns the table for communicators of a class of topology.
func (t *Table) On(topology string) *Table {
	on := *t
	on.topology = topology
	return &on
}

// nominalBytes is the size that is assumed where ranks see different sizes.
const nominalBytes = 64 << 10

// sizesDiffer reports whether ranks may see different sizes for one call, so
// that the choice must not depend on the size.
func sizesDiffer(c plugin.Collective) bool {
	return c == plugin.AllToAllV || c == plugin.GatherV || c == plugin.ScatterV
}

// Choice is the compiled choice for one signature. It is immutable and safe for
// concurrent use.
type Choice struct {
	upTo  []int64 // ascending last bytes of the ranges; the last one is MaxInt64
	index []int   // of the candidate for each range, or -1

	request    plugin.Request
	candidates []Candidate
	costs      []curve
	sources    []string // of the candidates' costs
	topology   string
	mode       Mode
	rejections map[string]string
	clauses    []Clause        // of the override that concern this signature
	fixed      bool            // one candidate for all sizes
	numerics   plugin.Numerics // the most that may differ for cost to decide
}

// Compile makes the choice for one signature; req.Bytes and req.Rank are not
// looked at. Candidates stand in order of preference, which decides between
// equal costs; rejections say for each transport without a candidate why it has
// none, and for an algorithm (qualified) that only other calls have, why. It fails with Unsupported when there is no
// candidate, and with InvalidArgument when the override asks for what does not exist.
func (t *Table) Compile(req plugin.Request, candidates []Candidate, rejections map[string]string) (*Choice, error) {
	req.Rank, req.Bytes = 0, 0
	c := &Choice{request: req, candidates: append([]Candidate(nil), candidates...), rejections: map[string]string{},
		fixed: sizesDiffer(req.Collective), topology: t.topology, mode: t.costs.mode(), numerics: t.costs.Numerics}
	for transport, reason := range rejections {
		c.rejections[transport] = reason
	}
	if len(candidates) == 0 {
		return nil, plugin.Errorf(plugin.Unsupported, "%s: no transport can do this: %s", signatureText(req), c.reasons())
	}
	for _, candidate := range c.candidates {
		if err := checkCandidate(candidate); err != nil {
			return nil, err
		}
		cost, source := staticCurve(candidate.Algorithm), SourceEstimate
		if points, from := t.costs.lookup(req, t.topology, candidate.Qualified); points != nil {
			cost, source = pointCurve(points), from
		}
		c.costs, c.sources = append(c.costs, cost), append(c.sources, source)
	}
	for _, clause := range t.override.clauses {
		if !clause.concerns(req.Collective) {
			continue
		}
		if clause.ranged() && clause.Collective == "*" && (c.fixed || oneTransport(req)) {
			continue
		}
		if c.fixed && clause.ranged() {
			return nil, plugin.Errorf(plugin.InvalidArgument,
				"SHUNT_ALGO clause %q: ranks see different sizes of one %s, so the clause can have no size range", clause,
				req.Collective)
		}
		if err := c.known(clause); err != nil {
			return nil, err
		}
		c.clauses = append(c.clauses, clause)
	}
	c.compile()
	return c, nil
}

// oneTransport reports whether a call must use one transport whatever its size: a message between GPUs may meet one of
// a group, which is an all_to_all_v.
func oneTransport(req plugin.Request) bool {
	return req.Memory == plugin.MemoryKindCuda && (req.Collective == plugin.Send || req.Collective == plugin.Recv)
}

// checkCandidate refuses costs and limits that would make the choice
// meaningless.
func checkCandidate(c Candidate) error {
	a := c.Algorithm
	if a.MinBytes < 0 || a.MaxBytes < 0 || (a.MaxBytes > 0 && a.MaxBytes < a.MinBytes) {
		return plugin.Errorf(plugin.Protocol, "algorithm %s has limits %d to %d bytes", c.Qualified, a.MinBytes, a.MaxBytes)
	}
	if !(a.Latency >= 0) || math.IsInf(a.Latency, 0) || !(a.Bandwidth > 0) || math.IsInf(a.Bandwidth, 0) {
		return plugin.Errorf(plugin.Protocol, "algorithm %s has latency %v and bandwidth %v; the one must be finite and not negative, the other finite and positive", c.Qualified, a.Latency, a.Bandwidth)
	}
	return nil
}

// known checks that each name of a clause is one that exists.
func (c *Choice) known(clause Clause) error {
	for _, name := range clause.Names {
		if name == "*" {
			continue
		}
		var names []string
		found := false
		for _, candidate := range c.candidates {
			found = found || matches(name, candidate)
			names = append(names, candidate.Qualified)
		}
		if found {
			continue
		}
		transport, _, _ := strings.Cut(name, "/")
		if c.rejections[name] != "" || c.rejections[transport] != "" {
			continue // it serves other calls; this one fails where the clause decides and no other name serves it
		}
		hint := ""
		if near := nearest.Of(name, names); near != "" {
			hint = "; did you mean " + near + "?"
		}
		return plugin.Errorf(plugin.InvalidArgument, "SHUNT_ALGO clause %q: %s has no algorithm %s; there are %s%s",
			clause, signatureText(c.request), name, strings.Join(names, ", "), hint)
	}
	return nil
}

// compile fills the ranges. Between two neighbouring breakpoints no limit, no
// clause and no slope changes, so there the costs are straight lines and the
// walk goes from one crossing of the cheapest line to the next.
func (c *Choice) compile() {
	if c.fixed {
		group, _ := c.group(nominalBytes)
		c.upTo, c.index = []int64{math.MaxInt64}, []int{c.cheapest(nominalBytes, group)}
		return
	}
	starts := c.breakpoints()
	for i, start := range starts {
		end := int64(math.MaxInt64)
		if i+1 < len(starts) {
			end = starts[i+1] - 1
		}
		group, _ := c.group(start)
		for at := start; ; {
			chosen := c.cheapest(at, group)
			last := c.cheapestUntil(chosen, at, end, group)
			c.extend(chosen, last)
			if last == end {
				break
			}
			at = last + 1
		}
	}
}

// extend says that a candidate is chosen up to a size.
func (c *Choice) extend(chosen int, last int64) {
	if n := len(c.index); n > 0 && c.index[n-1] == chosen {
		c.upTo[n-1] = last
		return
	}
	c.upTo, c.index = append(c.upTo, last), append(c.index, chosen)
}

// cheapestUntil returns the last size up to end before another candidate of the
// group is cheaper than the chosen one, which is cheapest at a size.
func (c *Choice) cheapestUntil(chosen int, at, end int64, group []int) int64 {
	for _, i := range group {
		if i == chosen {
			continue
		}
		for _, x := range crossing(c.costs[chosen].at(at), c.costs[i].at(at)) {
			if x > at && x <= end && c.cheapest(x, []int{min(i, chosen), max(i, chosen)}) == i {
				end = x - 1
				break
			}
		}
	}
	return end
}

// breakpoints returns the sizes, ascending from 0, at which a limit, a clause or a
// slope changes.
func (c *Choice) breakpoints() []int64 {
	points := map[int64]bool{0: true}
	add := func(bytes int64) {
		if bytes > 0 && bytes < math.MaxInt64 {
			points[bytes] = true
		}
	}
	for i, candidate := range c.candidates {
		add(candidate.Algorithm.MinBytes)
		if m := candidate.Algorithm.MaxBytes; m > 0 && m < math.MaxInt64 {
			add(m + 1)
		}
		for _, k := range c.costs[i] {
			add(k.from)
		}
	}
	for _, clause := range c.clauses {
		add(clause.From)
		if clause.To < math.MaxInt64 {
			add(clause.To + 1)
		}
	}
	return slices.Sorted(maps.Keys(points))
}

// group lists the candidates among which cost decides at a size: those that fit and
// match the first name, of the first clause for the size, that any fitting one matches;
// without a clause, all that fit. It is empty where a clause names no fitting one: a
// forced algorithm is not replaced silently. Barred are the candidates that fit as well,
// but compute with other numerics than are allowed and are not named.
func (c *Choice) group(bytes int64) (group, barred []int) {
	names := []string{"*"}
	if clause := c.clauseFor(bytes); clause != nil {
		names = clause.Names
	}
	for _, name := range names {
		for i, candidate := range c.candidates {
			if fits(candidate.Algorithm, bytes, c.fixed) && matches(name, candidate) {
				group = append(group, i)
			}
		}
		if group == nil {
			continue
		}
		if name == "*" {
			return c.ofNumerics(group)
		}
		break
	}
	return group, nil
}

// ofNumerics divides a group by numerics: into candidates as close to the tables as is allowed, or, without any, as the
// closest is, and the others.
func (c *Choice) ofNumerics(group []int) (near, barred []int) {
	limit := plugin.NumericsOwn
	for _, i := range group {
		limit = min(limit, c.candidates[i].Algorithm.Numerics)
	}
	limit = max(limit, c.numerics)
	for _, i := range group {
		if c.candidates[i].Algorithm.Numerics <= limit {
			near = append(near, i)
		} else {
			barred = append(barred, i)
		}
	}
	return near, barred
}

func (c *Choice) clauseFor(bytes int64) *Clause {
	for i := range c.clauses {
		if c.fixed || (bytes >= c.clauses[i].From && bytes <= c.clauses[i].To) {
			return &c.clauses[i]
		}
	}
	return nil
}

// cheapest returns the cheapest candidate of a group at a size, of equal ones the
// first; -1 for an empty group.
func (c *Choice) cheapest(bytes int64, group []int) int {
	best, bestCost := -1, 0.0
	for _, i := range group {
		if cost := c.costs[i].cost(bytes); best < 0 || cost < bestCost {
			best, bestCost = i, cost
		}
	}
	return best
}

// fits reports whether the limits allow a size; where ranks see different sizes
// only an algorithm without limits does.
func fits(a plugin.Algorithm, bytes int64, fixed bool) bool {
	if fixed {
		return a.MinBytes == 0 && a.MaxBytes == 0
	}
	return bytes >= a.MinBytes && (a.MaxBytes == 0 || bytes <= a.MaxBytes)
}

// matches reports whether a name of an override selects a candidate: "*", a
// transport, or a qualified algorithm.
func matches(name string, c Candidate) bool {
	return name == "*" || name == c.Transport || name == c.Qualified
}

// Pick returns the index of the candidate for a message of the given bytes (as in
// plugin.Request.Bytes), or -1 when none takes that size; then Unsupported is the
// error to return. It does not allocate.
func (c *Choice) Pick(bytes int64) int {
	for i, last := range c.upTo {
		if bytes <= last {
			return c.index[i]
		}
	}
	return -1
}

// Chosen lists the candidates that Pick can return, ascending, each once.
func (c *Choice) Chosen() []int {
	var list []int
	for i := range c.candidates {
		if slices.Contains(c.index, i) {
			list = append(list, i)
		}
	}
	return list
}

// Candidates returns the candidates that Pick's result indexes. The choice owns
// the slice.
func (c *Choice) Candidates() []Candidate { return c.candidates }

// Unsupported returns the error for a size for which Pick is -1; it says for every
// transport why.
func (c *Choice) Unsupported(bytes int64) error {
	e := c.Explain(bytes)
	reasons := make([]string, 0, len(e.Rejected))
	for _, r := range e.Rejected {
		reasons = append(reasons, r.Name+": "+r.Reason)
	}
	forced := ""
	if e.Clause != "" {
		forced = fmt.Sprintf(" that SHUNT_ALGO clause %q allows", e.Clause)
	}
	return plugin.Errorf(plugin.Unsupported, "%s, %s: no algorithm%s can do this: %s",
		signatureText(c.request), FormatSize(bytes), forced, strings.Join(reasons, "; "))
}

// reasons lists the rejections by transport.
func (c *Choice) reasons() string {
	if len(c.rejections) == 0 {
		return "none is loaded"
	}
	names := slices.Sorted(maps.Keys(c.rejections))
	for i, name := range names {
		names[i] = name + ": " + c.rejections[name]
	}
	return strings.Join(names, "; ")
}

// signatureText names a signature in messages.
func signatureText(req plugin.Request) string {
	what := req.Collective.String()
	if req.Collective != plugin.Barrier {
		what += " of " + req.DType.String()
	}
	if req.Collective.Reduces() {
		what += " " + req.Op.String()
	}
	if req.Symmetric {
		what += ", symmetric"
	}
	if req.DeviceCounts {
		what += ", counts on the device"
	}
	return fmt.Sprintf("%s, %s, %s memory", what, worldText(req.World, max(req.Hosts, 1)), req.Memory)
}

func worldText(world, hosts int) string {
	if hosts == 1 {
		return fmt.Sprintf("world %d on 1 host", world)
	}
	return fmt.Sprintf("world %d on %d hosts", world, hosts)
}
