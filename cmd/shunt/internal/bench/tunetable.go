package bench

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/shunt-ccl/shunt/host/selector"
)

// TuneTable writes the times of one collective's algorithms: a line for each
// size, a column for each algorithm.
func TuneTable(w io.Writer, c *Config, rows []Tuned) {
	if len(rows) == 0 {
		return
	}
	var columns []string
	symmetric := false
	for _, t := range rows {
		for _, name := range append(slices.Clone(t.choice.Plain.Usable), t.choice.only()...) {
			if !slices.Contains(columns, name) {
				columns = append(columns, name)
			}
		}
		symmetric = symmetric || t.Symmetric != nil
	}
	note := ""
	if len(c.Modes) > 0 {
		note = ", " + string(c.Modes[0])
	}
	fmt.Fprintf(w, "# %s: µs of one operation, slowest rank, median; %d ranks, %s memory, %s", rows[0].Collective, c.World,
		c.Memory, c.DType)
	if find(rows[0].Collective).collective.Reduces() {
		fmt.Fprintf(w, " %s", c.Op)
	}
	fmt.Fprintln(w, note)
	if OneForAll(rows[0].Collective) {
		fmt.Fprintln(w, "# ranks see different sizes of one call: one algorithm serves all, the best in the mean")
	}
	heads := []string{"best"}
	if symmetric {
		heads = append(heads, "symmetric memory: best")
	}
	names := len("untuned")
	for _, name := range slices.Concat(columns, heads) {
		names = max(names, len(name))
	}
	fmt.Fprintf(w, "#%9s %9s", "buffer", "message")
	for _, name := range columns {
		fmt.Fprintf(w, " %*s", max(len(name), 9), name)
	}
	for _, head := range heads {
		fmt.Fprintf(w, "  %-*s  %-*s %5s", names, head, names, "untuned", "loss")
	}
	fmt.Fprintln(w)
	for i := range rows {
		t := &rows[i]
		fmt.Fprintf(w, "%10s %9s", selector.FormatSize(t.Bytes), selector.FormatSize(t.Message))
		for _, name := range columns {
			fmt.Fprintf(w, " %*s", max(len(name), 9), t.cell(name))
		}
		for _, v := range []*Verdict{&t.Plain, t.Symmetric}[:len(heads)] {
			best, untuned, loss := "-", "-", "-"
			if v != nil {
				best, untuned, loss = v.Best, v.Untuned, "0"
				if v.Loss > 0 {
					loss = percent(v.Loss)
				}
			}
			fmt.Fprintf(w, "  %-*s  %-*s %5s", names, best, names, untuned, loss)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

// cell returns an algorithm's time; "-" where its limits exclude the size, "slow"
// where it was given up.
func (t *Tuned) cell(name string) string {
	us, ok := t.Times[name]
	switch {
	case t.Wrong[name] > 0:
		return "wrong"
	case ok:
		return short(us)
	case slices.Contains(t.Plain.GivenUp, name) || (t.Symmetric != nil && slices.Contains(t.Symmetric.GivenUp, name)):
		return "slow"
	}
	return "-"
}

func percent(share float64) string {
	if math.Abs(share) < 0.1 {
		return fmt.Sprintf("%.1f%%", 100*share)
	}
	return fmt.Sprintf("%.0f%%", 100*share)
}

// Change is a run of sizes for which the file changes the choice.
type Change struct {
	Collective string  `json:"collective"`
	Symmetric  bool    `json:"symmetric,omitempty"`
	From       int64   `json:"from"` // message bytes, measured
	To         int64   `json:"to"`
	Untuned    string  `json:"untuned"`
	Tuned      string  `json:"tuned"`
	Least      float64 `json:"least"` // of the shares of time that the file saves; below 0 it costs
	Most       float64 `json:"most"`
}

// Changes returns the sizes at which the file changes the choice.
func Changes(list []Tuned) []Change {
	var changes []Change
	for _, symmetric := range []bool{false, true} {
		open := false // the range of the last change may still grow
		for i := range list {
			t := &list[i]
			if OneForAll(t.Collective) {
				if !symmetric && (i == 0 || list[i-1].Collective != t.Collective) {
					changes = append(changes, changeForAll(list, t.Collective)...)
				}
				open = false
				continue
			}
			v := &t.Plain
			if symmetric {
				v = t.Symmetric
			}
			if v == nil || v.Tuned == "" || v.Tuned == v.Untuned {
				open = false
				continue
			}
			saved := 0.0
			if a, b := t.Times[v.Untuned], t.Times[v.Tuned]; a > 0 && b > 0 {
				saved = 1 - b/a
			}
			if last := len(changes) - 1; open && changes[last].Collective == t.Collective &&
				changes[last].Untuned == v.Untuned && changes[last].Tuned == v.Tuned {
				c := &changes[last]
				c.To, c.Least, c.Most = t.Message, min(c.Least, saved), max(c.Most, saved)
				continue
			}
			changes, open = append(changes, Change{t.Collective, symmetric, t.Message, t.Message, v.Untuned, v.Tuned, saved,
				saved}), true
		}
	}
	return changes
}

// changeForAll returns the change of a collective of which one algorithm serves all
// sizes, in the mean over those that were measured, if there is any.
func changeForAll(list []Tuned, collective string) []Change {
	rows := rowsOf(list, collective)
	v := &rows[0].Plain
	if v.Tuned == "" || v.Tuned == v.Untuned {
		return nil
	}
	saved := 1 - meanSlower(rows, v.Tuned)/meanSlower(rows, v.Untuned)
	if math.IsNaN(saved) {
		saved = 0
	}
	return []Change{{collective, false, rows[0].Message, rows[len(rows)-1].Message, v.Untuned, v.Tuned, saved, saved}}
}

// rowsOf returns the rows of one collective.
func rowsOf(list []Tuned, collective string) []Tuned {
	return slices.DeleteFunc(slices.Clone(list), func(t Tuned) bool { return t.Collective != collective })
}

func (c Change) String() string {
	what, sizes, saved := c.Collective, selector.FormatSize(c.From), percent(c.Most)
	if c.Symmetric {
		what += ", symmetric memory"
	}
	switch {
	case OneForAll(c.Collective):
		sizes = "all sizes"
	case c.To > c.From:
		sizes += " to " + selector.FormatSize(c.To)
	}
	if percent(c.Least) != saved {
		saved = percent(c.Least) + " to " + saved
	}
	if OneForAll(c.Collective) {
		saved = "in the mean " + saved
	}
	return fmt.Sprintf("%s, %s: %s instead of %s, %s less time", what, sizes, c.Tuned, c.Untuned, saved)
}

// Misses says for which sizes the choice with the file is not the best one.
func Misses(list []Tuned) []string {
	var lines []string
	for i := range list {
		t := &list[i]
		for _, v := range []*Verdict{&t.Plain, t.Symmetric} {
			if OneForAll(t.Collective) {
				if v == &t.Plain && (i == 0 || list[i-1].Collective != t.Collective) {
					lines = append(lines, missForAll(rowsOf(list, t.Collective))...)
				}
				continue
			}
			if v == nil || !v.Missed() {
				continue
			}
			what := t.Collective
			if v == t.Symmetric {
				what += ", symmetric memory"
			}
			why := percent(v.Left) + " slower"
			if v.Left <= 0 {
				why = "which was given up"
			}
			lines = append(lines, fmt.Sprintf("%s, %s: takes %s, and %s is best: %s", what, selector.FormatSize(t.Message),
				v.Tuned, v.Best, why))
		}
	}
	return lines
}

// missForAll returns the miss of a collective of which one algorithm serves all sizes:
// another one is better in the mean.
func missForAll(rows []Tuned) []string {
	tuned := rows[0].Plain.Tuned
	if tuned == "" {
		return nil
	}
	name := bestForAll(rows)
	if mine, other := meanSlower(rows, tuned), meanSlower(rows, name); other*(1+Noise) < mine {
		return []string{fmt.Sprintf("%s, all sizes: takes %s, and %s is better: in the mean %s slower", rows[0].Collective,
			tuned, name, percent(mine/other-1))}
	}
	return nil
}
