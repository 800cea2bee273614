package bench

import (
	"maps"
	"math"
	"slices"

	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// Tuned is one size of one collective, with the times of all its algorithms.
type Tuned struct {
	Collective string             `json:"collective"`
	Bytes      int64              `json:"bytes"`   // of the whole buffer
	Message    int64              `json:"message"` // of one rank, as in the tuning file
	Times      map[string]float64 `json:"us"`      // by algorithm; those that were given up have none
	Wrong      map[string]int64   `json:"wrong,omitempty"`
	Plain      Verdict            `json:"plain"`
	Symmetric  *Verdict           `json:"symmetric,omitempty"` // on symmetric memory, where that opens algorithms
	choice     Choice
	timings    map[string]Timing
}

// Verdict compares a choice with the best one.
type Verdict struct {
	Best    string   `json:"best,omitempty"`
	Untuned string   `json:"untuned,omitempty"` // what runs without the file
	Loss    float64  `json:"loss"`              // of that, as a share of the best one's time
	Tuned   string   `json:"tuned,omitempty"`   // what runs with the file, once that was asked
	Left    float64  `json:"left"`              // loss of that
	GivenUp []string `json:"given_up,omitempty"`

	fastest float64 // of all that were measured; less than Best's time where that is as fast within noise
}

// fewBatches is the number of batches from which on quartiles tell more than medians alone.
const fewBatches = 8

// clearlyBelow reports whether a time is shorter than another beyond their noise: their quartiles do not overlap; or,
// where there are few batches, their medians differ by more than Noise.
func (t Timing) clearlyBelow(other Timing) bool {
	if t.batches < fewBatches || other.batches < fewBatches {
		return t.Microseconds*(1+Noise) < other.Microseconds
	}
	return t.P75 < other.P25
}

// Noise is the loss, as a share, up to which one algorithm counts as fast as
// another.
const Noise = 0.05

// NewTuned joins what was measured with what the selector would have taken
// without a file. Choices that no row belongs to are left out.
func NewTuned(rows []Row, choices []Choice) []Tuned {
	var list []Tuned
	for _, a := range choices {
		i := slices.IndexFunc(rows, func(r Row) bool {
			return r.Collective == a.Collective && r.Bytes == a.Bytes &&
				r.Skipped == ""
		})
		if i < 0 {
			continue
		}
		t := Tuned{Collective: a.Collective, Bytes: a.Bytes, Message: a.Message, Times: map[string]float64{}, choice: a,
			timings: map[string]Timing{}}
		for _, p := range rows[i].Peers {
			t.Times[p.Name], t.timings[p.Name] = p.Microseconds, p.Timing
			if p.Wrong > 0 {
				if t.Wrong == nil {
					t.Wrong = map[string]int64{}
				}
				t.Wrong[p.Name] = p.Wrong
			}
		}
		t.Plain = t.verdict(&a.Plain)
		if a.Symmetric != nil {
			v := t.verdict(a.Symmetric)
			t.Symmetric = &v
		}
		list = append(list, t)
	}
	return list
}

func (t *Tuned) verdict(o *Offer) Verdict {
	v := Verdict{Untuned: o.Chosen}
	for _, name := range o.Usable {
		us, measured := t.Times[name]
		switch {
		case !measured:
			v.GivenUp = append(v.GivenUp, name)
		case v.Best == "" || us < t.Times[v.Best]:
			v.Best = name
		}
	}
	v.fastest = t.Times[v.Best]
	if mine, measured := t.timings[v.Untuned]; measured && !t.timings[v.Best].clearlyBelow(mine) {
		v.Best = v.Untuned // noise is no reason for a change
	}
	v.Loss = t.loss(v.Best, v.Untuned)
	return v
}

// loss returns how much longer an algorithm takes than the best one, as a fraction;
// 0 where one of them was not measured.
func (t *Tuned) loss(best, name string) float64 {
	a, b := t.Times[best], t.Times[name]
	if a <= 0 || b <= 0 {
		return 0
	}
	return b/a - 1
}

// Ask notes what the selector takes with the file, by its choices for the same
// questions.
func (t *Tuned) Ask(choices []Choice) {
	i := slices.IndexFunc(choices, func(a Choice) bool {
		return a.Collective == t.Collective && a.Bytes == t.Bytes && a.Message == t.Message
	})
	if i < 0 {
		return
	}
	t.Plain.Tuned, t.Plain.Left = choices[i].Plain.Chosen, t.loss(t.Plain.Best, choices[i].Plain.Chosen)
	if s := choices[i].Symmetric; s != nil && t.Symmetric != nil {
		t.Symmetric.Tuned, t.Symmetric.Left = s.Chosen, t.loss(t.Symmetric.Best, s.Chosen)
	}
}

// Missed reports whether the choice with the file is worse than the best by more
// than noise, or was given up.
func (v *Verdict) Missed() bool {
	return v.Tuned != "" && (v.Left > Noise || slices.Contains(v.GivenUp, v.Tuned))
}

// Only says for what a measurement is to hold alone.
type Only struct {
	DType bool // reductions of dtypes of its class
	Op    bool // reductions of its op
	Mode  bool // calls of its mode
}

// Entries returns the tuning file's entries for one world on one host, of the topology that was measured on.
func Entries(c *Config, list []Tuned, only Only) []selector.Entry {
	var entries []selector.Entry
	for _, name := range c.names() {
		collective := find(name).collective
		rows := rowsOf(list, name)
		var order []string
		for _, t := range rows {
			for _, a := range append(slices.Clone(t.choice.Plain.Usable), t.choice.only()...) {
				if !slices.Contains(order, a) {
					order = append(order, a)
				}
			}
		}
		if len(order) < 2 {
			continue // nothing to choose
		}
		var points map[string][]selector.Point
		if OneForAll(name) {
			points = overall(rows, order)
		} else {
			points = shaped(rows, order)
		}
		for _, a := range order {
			if len(points[a]) == 0 {
				continue
			}
			e := selector.Entry{Collective: collective.String(), Algorithm: a, World: c.World, Hosts: 1,
				Memory: c.Memory.String(), Topology: rows[0].choice.Topology, Points: points[a]}
			// What only moves bytes is one for all dtypes.
			if only.DType && collective.Reduces() {
				e.DType = selector.DTypeClass(c.DType)
			}
			if only.Op && collective.Reduces() {
				e.Op = c.Op.String()
			}
			if only.Mode && len(c.Modes) > 0 {
				e.Mode = selector.Mode(c.Modes[0])
			}
			entries = append(entries, e)
		}
	}
	return entries
}

// shaped returns the points of all algorithms, with which the best ones are chosen at the measured sizes, and between
// and beyond them what follows.
func shaped(rows []Tuned, order []string) map[string][]selector.Point {
	measured, points := map[string][]selector.Point{}, map[string][]selector.Point{}
	var only []string
	for i := range rows {
		only = append(only, rows[i].choice.only()...)
	}
	for _, name := range order {
		if list := curve(rows, name); len(list) > 0 {
			measured[name] = list
		}
	}
	c := newCurves(rows, measured, only)
	if c == nil {
		return nil
	}
	for name := range measured {
		if !givenUp(rows, name) {
			points[name] = c.of(name, slices.Contains(only, name))
		}
	}
	whole := slices.Collect(maps.Values(points))
	for name := range measured {
		if points[name] == nil {
			points[name] = c.behind(name, slices.Contains(only, name), whole)
		}
	}
	return points
}

// curve returns the measured times of an algorithm.
func curve(rows []Tuned, name string) []selector.Point {
	var points []selector.Point
	for i := range rows {
		us, ok := rows[i].Times[name]
		if !ok || (len(points) > 0 && points[len(points)-1].Bytes >= rows[i].Message) {
			continue // a larger buffer whose longest message is no longer
		}
		points = append(points, selector.Point{Bytes: rows[i].Message, Microseconds: us})
	}
	return points
}

// overall returns for every algorithm one point that stands for all sizes, at the one by which the choice is
// made: the mean over sizes of how much longer than the best the algorithm takes, in times of the best one there. What
// serves all sizes best counts as a nanosecond faster than all others that take the same memory.
func overall(rows []Tuned, order []string) map[string][]selector.Point {
	points := map[string][]selector.Point{}
	nearest := &rows[0]
	for i := range rows {
		distance := math.Abs(float64(rows[i].Message - selector.NominalBytes))
		if distance < math.Abs(float64(nearest.Message-selector.NominalBytes)) {
			nearest = &rows[i]
		}
	}
	best, least := bestForAll(rows), math.Inf(1)
	for _, name := range order {
		if slower := meanSlower(rows, name); !math.IsNaN(slower) {
			us := max(math.Round(slower*nearest.Times[nearest.Plain.Best]*1e3)/1e3, 0.002)
			points[name] = []selector.Point{{Bytes: selector.NominalBytes, Microseconds: us}}
			if name != best && slices.Contains(rows[0].choice.Plain.Usable, name) {
				least = min(least, us)
			}
		}
	}
	if own := points[best]; own != nil {
		own[0].Microseconds = min(own[0].Microseconds, least-1e-3)
	}
	return points
}

// bestForAll returns the algorithm that serves all sizes best: what runs without a file, unless another one takes less
// time in the mean, by more than noise, and clearly so at two sizes at least, and at more than those at which it
// clearly takes more. Of one size it is the one that is best there.
func bestForAll(rows []Tuned) string {
	if len(rows) == 1 {
		return rows[0].Plain.Best
	}
	best := rows[0].Plain.Untuned
	least := meanSlower(rows, best) / (1 + Noise)
	for _, name := range rows[0].choice.Plain.Usable {
		mean, won, lost := meanSlower(rows, name), 0, 0
		for i := range rows {
			mine, measured := rows[i].timings[rows[0].Plain.Untuned]
			other, also := rows[i].timings[name]
			if measured && also && other.clearlyBelow(mine) {
				won++
			} else if measured && (!also || mine.clearlyBelow(other)) {
				lost++
			}
		}
		if mean < least && won > lost && won >= 2 {
			best, least = name, mean
		}
	}
	return best
}

// meanSlower returns the geometric mean over sizes of an algorithm's time over the
// best one's; where it was given up it counts as hopeless. It is NaN where it was
// never measured.
func meanSlower(rows []Tuned, name string) float64 {
	var ratios []float64
	measured := false
	for i := range rows {
		t := &rows[i]
		us, ok := t.Times[name]
		switch {
		case t.Plain.Best == "":
		case ok:
			measured = true
			ratios = append(ratios, us/t.Times[t.Plain.Best])
		case slices.Contains(t.Plain.GivenUp, name):
			ratios = append(ratios, hopeless)
		}
	}
	if !measured {
		return math.NaN()
	}
	return GeometricMean(ratios)
}

// givenUp reports whether an algorithm could run at a larger size than the last
// one that was measured.
func givenUp(rows []Tuned, name string) bool {
	for i := len(rows) - 1; i >= 0; i-- {
		if _, ok := rows[i].Times[name]; ok {
			return false
		}
		if a := &rows[i].choice; slices.Contains(a.Plain.Usable, name) || slices.Contains(a.only(), name) {
			return true
		}
	}
	return false
}

// Algorithms returns the number of algorithms of a collective to choose from.
func Algorithms(choices []Choice, collective string) int {
	var names []string
	for _, a := range choices {
		if a.Collective == collective {
			names = append(append(names, a.Plain.Usable...), a.only()...)
		}
	}
	slices.Sort(names)
	return len(slices.Compact(names))
}

// Unmeasured returns algorithms of a collective that take none of the sizes that were
// asked about, and so keep their estimates beside measured costs.
func Unmeasured(choices []Choice, collective string) []string {
	var names []string
	for _, a := range choices {
		if a.Collective == collective {
			names = append(names, a.Unfit...)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		return slices.ContainsFunc(choices, func(a Choice) bool {
			return a.Collective == collective && (slices.Contains(a.Plain.Usable, name) || slices.Contains(a.only(), name))
		})
	})
}

// OneForAll reports whether one algorithm serves all sizes of a collective,
// because its ranks see different ones.
func OneForAll(collective string) bool {
	t := find(collective)
	return t != nil && t.collective != plugin.Barrier && selector.OneForAll(t.collective)
}
