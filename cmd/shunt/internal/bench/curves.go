package bench

import (
	"math"
	"slices"

	"github.com/shunt-ccl/shunt/host/selector"
)

// Span is a range of message sizes for which a choice is the same.
type Span struct {
	To   int64  `json:"to"` // its last size; MaxInt64: without end
	Name string `json:"name,omitempty"`
}

// schedule holds the choice for every size: spans, ascending, the last one without end.
type schedule []Span

// at returns what is to be chosen at a size.
func (s schedule) at(bytes int64) string {
	for _, span := range s {
		if bytes <= span.To {
			return span.Name
		}
	}
	return ""
}

func (s schedule) until(to int64, name string) schedule {
	if last := len(s) - 1; last >= 0 && (s[last].Name == name || s[last].To >= to) {
		s[last].To = max(s[last].To, to)
		return s
	}
	return append(s, Span{to, name})
}

// like continues the schedule to a size as another one has it, with what is known of its names.
func (s schedule) like(other []Span, to int64, known func(string) bool) schedule {
	for _, span := range other {
		if len(s) > 0 && span.To <= s[len(s)-1].To {
			continue
		}
		name := span.Name
		if !known(name) && len(s) > 0 {
			name = s[len(s)-1].Name
		}
		if s = s.until(min(span.To, to), name); span.To >= to {
			break
		}
	}
	return s
}

// decision holds the best algorithm at one measured size, and the one that runs there without a file.
type decision struct {
	bytes         int64
	best, untuned string
}

// newSchedule returns the choice at all sizes that follows from that at the measured ones. Between two of them, before
// the first and beyond the last one what runs without a file stays if it is best at those. Else one choice gives way to
// the next at the size that turn returns.
func newSchedule(list []decision, untuned []Span, known func(string) bool, turn func(a, b *decision) int64) schedule {
	var s schedule
	stays := func(d *decision) bool { return d.best == d.untuned && len(untuned) > 0 }
	for i := range list {
		d, before := &list[i], &list[max(i-1, 0)]
		switch {
		case stays(d) && stays(before):
			s = s.like(untuned, d.bytes, known)
		case i > 0 && before.best != d.best:
			s = s.until(turn(before, d), before.best)
		}
		s = s.until(d.bytes, d.best)
	}
	last := &list[len(list)-1]
	if stays(last) {
		s = s.like(untuned, math.MaxInt64, known)
	}
	return s.until(math.MaxInt64, last.best)
}

// far is how far beyond the last measured size the curves say what is chosen there, at most.
const far = 1 << 40

// farCost bounds costs there, in microseconds: files take none beyond 1e12.
const farCost = 1e10

// curves makes points of what was measured, so that the algorithm of a schedule costs least at every size: at the sizes
// measured, around every change of the choice, and far away. Algorithms that only symmetric memory opens are beside
// the others there, with a schedule of their own, whose empty name means the one of the others.
type curves struct {
	measured  map[string][]selector.Point
	sizes     []int64 // that were measured
	nodes     []int64 // of all points
	plain     among
	symmetric among
}

// among is the choice among some algorithms.
type among struct {
	schedule schedule
	best     []selector.Point // cost at the measured sizes, of what is chosen there
}

func newCurves(rows []Tuned, measured map[string][]selector.Point, only []string) *curves {
	c := &curves{measured: measured}
	known := func(name string) bool { return len(measured[name]) > 0 }
	opened := func(name string) bool { return known(name) && slices.Contains(only, name) }
	var plain, symmetric []decision
	var spans, symmetricSpans []Span
	usable := map[int64]*Choice{}
	for i := range rows {
		t := &rows[i]
		if t.Plain.Best == "" || (len(c.sizes) > 0 && c.sizes[len(c.sizes)-1] >= t.Message) {
			continue
		}
		c.sizes, spans, usable[t.Message] = append(c.sizes, t.Message), t.choice.Plain.Spans, &t.choice
		plain = append(plain, decision{t.Message, t.Plain.Best, t.Plain.Untuned})
		c.plain.best = append(c.plain.best, t.least(&t.Plain))
		d, least := decision{bytes: t.Message}, selector.Point{}
		if v := t.Symmetric; v != nil {
			symmetricSpans = nil
			for _, span := range t.choice.Symmetric.Spans {
				if !opened(span.Name) {
					span.Name = ""
				}
				symmetricSpans = append(symmetricSpans, span)
			}
			if opened(v.Untuned) {
				d.untuned = v.Untuned
			}
			if opened(v.Best) {
				d.best, least = v.Best, t.least(v)
			}
		}
		symmetric, c.symmetric.best = append(symmetric, d), append(c.symmetric.best, least)
	}
	if len(c.sizes) == 0 {
		return nil
	}
	// Two choices change places where their times do, or where the one that takes only one of the two sizes ends.
	turn := func(a, b *decision) int64 {
		fits := func(name string, bytes int64) bool {
			choice := usable[bytes]
			return name == "" || slices.Contains(choice.Plain.Usable, name) || slices.Contains(choice.only(), name)
		}
		switch {
		case !fits(a.best, b.bytes) || a.best == "":
			return a.bytes
		case !fits(b.best, a.bytes) || b.best == "":
			return b.bytes - 1
		}
		less := func(bytes int64) float64 {
			return selector.Cost(measured[b.best], bytes) - selector.Cost(measured[a.best], bytes)
		}
		from, to := less(a.bytes), less(b.bytes)
		if from <= to {
			return a.bytes + (b.bytes-a.bytes)/2
		}
		share := min(max(from/(from-to), 0), 1)
		return min(a.bytes+int64(share*float64(b.bytes-a.bytes)), b.bytes-1)
	}
	c.plain.schedule = newSchedule(plain, spans, known, turn)
	c.symmetric.schedule = newSchedule(symmetric, symmetricSpans, func(string) bool { return true }, turn)
	c.place()
	return c
}

// least returns the cost of the best one, a nanosecond less than all others have, also where only noise says that
// another is faster.
func (t *Tuned) least(v *Verdict) selector.Point {
	us := t.Times[v.Best]
	if us > v.fastest {
		us = v.fastest - 1e-3
	}
	return selector.Point{Bytes: t.Message, Microseconds: us}
}

// place fills the nodes.
func (c *curves) place() {
	last, steepest := c.sizes[len(c.sizes)-1], 0.0
	c.nodes = slices.Clone(c.sizes)
	if last > 0 { // not of a barrier, which has one size
		for _, points := range c.measured {
			steepest = max(steepest, selector.Cost(points, 2*last)-selector.Cost(points, last))
		}
		end := last + max(int64(min(far, farCost/steepest*float64(last))), 2)
		for _, span := range slices.Concat(c.plain.schedule, c.symmetric.schedule) {
			if span.To < end-1 && len(c.nodes)+3 <= selector.MaxTuningPoints {
				c.nodes = append(c.nodes, span.To, span.To+1)
			}
		}
		if len(c.nodes) < selector.MaxTuningPoints {
			c.nodes = append(c.nodes, end)
		}
	}
	slices.Sort(c.nodes)
	c.nodes = slices.Compact(c.nodes)
}

// nanoseconds are what costs are rounded to, so that a difference of one is kept.
func nanoseconds(us float64) int64 { return max(int64(math.Floor(us*1e3+1e-6)), 1) }

// least returns what is chosen at a size, and its cost.
func (c *curves) least(bytes int64) (name string, ns int64) {
	return c.plain.schedule.at(bytes), nanoseconds(selector.Cost(c.plain.best, bytes))
}

// leastSymmetric is least where memory is symmetric.
func (c *curves) leastSymmetric(bytes int64) (name string, ns int64) {
	_, plain := c.least(bytes)
	if name = c.symmetric.schedule.at(bytes); name == "" {
		return "", plain
	}
	us := selector.Cost(c.measured[name], bytes)
	if i, found := slices.BinarySearch(c.sizes, bytes); found {
		us = c.symmetric.best[i].Microseconds
	}
	return name, min(nanoseconds(us), plain-1)
}

// side returns the function for an algorithm that only symmetric memory opens, or another one.
func (c *curves) side(symmetric bool) func(bytes int64) (name string, ns int64) {
	if symmetric {
		return c.leastSymmetric
	}
	return c.least
}

// of returns the points of an algorithm.
func (c *curves) of(name string, symmetric bool) []selector.Point {
	least := c.side(symmetric)
	is := func(i int) bool {
		chosen, _ := least(c.nodes[min(max(i, 0), len(c.nodes)-1)])
		return chosen == name
	}
	var points []selector.Point
	above := int64(0) // the least, at the last node
	for i, bytes := range c.nodes {
		_, ns := least(bytes)
		_, measured := slices.BinarySearch(c.sizes, bytes)
		switch {
		case is(i):
			above = 0
		case !measured && (is(i-1) || is(i+1)):
			above = 1
		case i == len(c.nodes)-1:
			above = max(above, nanoseconds(selector.Cost(c.measured[name], bytes))-ns, 1)
		default:
			above = max(nanoseconds(selector.Cost(c.measured[name], bytes))-ns, 1)
		}
		points = append(points, selector.Point{Bytes: bytes, Microseconds: float64(ns+above) / 1e3})
	}
	return points
}

// outclassed is the cost of an algorithm whose measurement was given up, in times of the slowest one of the others.
const outclassed = 8

// behind returns the points of an algorithm that was too slow to be measured further, so that beyond its last measured
// size it costs more than all others.
func (c *curves) behind(name string, symmetric bool, others [][]selector.Point) []selector.Point {
	points, measured := c.of(name, symmetric), c.measured[name]
	for i := range points {
		p := &points[i]
		if chosen, _ := c.side(symmetric)(p.Bytes); chosen == name || p.Bytes <= measured[len(measured)-1].Bytes {
			continue
		}
		for _, other := range others {
			p.Microseconds = max(p.Microseconds, outclassed*other[i].Microseconds)
		}
	}
	return points
}
