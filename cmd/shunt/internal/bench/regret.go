package bench

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/internal/failpoint"
)

// Auto is the name of what the selector takes by itself, among the rows of Config.Regret.
const Auto = "auto"

// autoSlowed stands before what is chosen, so that a test can make it regrettable.
var autoSlowed = failpoint.New("bench.auto", "before each call of what is chosen by itself, in `shunt tune --regret`")

// Regretted is the loss, as a share, above which a choice counts as regretted.
const Regretted = 0.03

// Regret compares what runs by itself with everything that could, at one size of one collective, on one kind of memory.
type Regret struct {
	Collective string             `json:"collective"`
	Mode       Mode               `json:"mode,omitempty"`
	Symmetric  bool               `json:"symmetric,omitempty"` // receive memory is
	Bytes      int64              `json:"bytes"`               // of the whole buffer
	Message    int64              `json:"message"`             // of one rank
	Chosen     string             `json:"chosen"`
	Auto       float64            `json:"us"` // of what was chosen
	Best       string             `json:"best"`
	BestTime   float64            `json:"best_us"`
	Loss       float64            `json:"loss"` // of Auto, as a share of BestTime; below 0 nothing was as fast
	Clear      bool               `json:"clear"`
	Why        string             `json:"why,omitempty"` // Best was not chosen, as `shunt explain` says
	Times      map[string]float64 `json:"times"`         // of all that were measured
	Wrong      map[string]int64   `json:"wrong,omitempty"`
}

// Regrets joins rows of Config.Regret with the choices of such ranks. Rows that were skipped are left out.
func Regrets(rows []Row, choices []Choice) []Regret {
	var list []Regret
	for i := range rows {
		row := &rows[i]
		at := slices.IndexFunc(choices, func(a Choice) bool {
			return a.Collective == row.Collective && a.Bytes == row.Bytes
		})
		if row.Skipped != "" || at < 0 {
			continue
		}
		a := &choices[at]
		r := Regret{Collective: row.Collective, Mode: row.Mode, Bytes: row.Bytes, Message: a.Message}
		list = append(list, r.against(row, &a.Plain, Auto, NCCL))
		if row.Peer(Symmetric) != nil {
			r.Symmetric = true
			offer := a.Plain
			if a.Symmetric != nil {
				offer = *a.Symmetric
			}
			list = append(list, r.against(row, &offer, Symmetric, NCCLWindow))
		}
	}
	return list
}

// against compares what a row has under the name of auto with the algorithms of an offer, and with NCCL. A result that
// is wrong is no contender.
func (r Regret) against(row *Row, offer *Offer, auto, nccl string) Regret {
	mine := row.Peer(auto)
	r.Chosen, r.Auto = offer.Chosen, mine.Microseconds
	r.Times, r.Wrong = map[string]float64{auto: mine.Microseconds}, map[string]int64{}
	if mine.Wrong > 0 {
		r.Wrong[auto] = mine.Wrong
	}
	var best *Peer
	for _, name := range append(slices.Clone(offer.Usable), nccl) {
		p := row.Peer(name)
		if p == nil {
			continue
		}
		r.Times[name] = p.Microseconds
		if p.Wrong > 0 {
			r.Wrong[name] = p.Wrong
		}
		if p.Wrong == 0 && (best == nil || p.Microseconds < best.Microseconds) {
			best = p
		}
	}
	if best == nil {
		return r
	}
	r.Best, r.BestTime, r.Why = best.Name, best.Microseconds, offer.Why[best.Name]
	if r.BestTime > 0 {
		r.Loss = r.Auto/r.BestTime - 1
	}
	r.Clear = best.clearlyBelow(mine.Timing)
	return r
}

// RegretTable writes the sizes at which a choice is regretted, and a summary.
func RegretTable(w io.Writer, list []Regret) {
	fmt.Fprintf(w, "# sizes at which what is chosen takes more than %.0f %% longer than the best; ~: their quartiles overlap\n",
		100*Regretted)
	fmt.Fprintf(w, "#%-18s %-5s %9s %9s  %-24s %9s  %-24s %9s %7s  %s\n", "collective", "mode", "buffer", "message", "chosen",
		"µs", "best", "µs", "loss", "why not the best")
	regretted, unclear := 0, 0
	var ratios []float64
	for _, r := range list {
		if r.BestTime > 0 && r.Auto > 0 {
			ratios = append(ratios, r.Auto/r.BestTime)
		}
		if r.Loss <= Regretted {
			continue
		}
		regretted++
		what, mark := r.Collective, " "
		if r.Symmetric {
			what += " sym"
		}
		if !r.Clear {
			unclear, mark = unclear+1, "~"
		}
		mode := string(r.Mode)
		if mode == "" {
			mode = "-"
		}
		fmt.Fprintf(w, "%-19s %-5s %9s %9s  %-24s %9s  %-24s %9s %6s%s  %s\n", what, mode, selector.FormatSize(r.Bytes),
			selector.FormatSize(r.Message), r.Chosen, short(r.Auto), r.Best, short(r.BestTime), percent(r.Loss), mark, r.Why)
	}
	fmt.Fprintf(w, "# %d of %d sizes, %d of them within noise", regretted, len(list), unclear)
	if mean := GeometricMean(ratios); !math.IsNaN(mean) {
		fmt.Fprintf(w, "; chosen / best, mean of all sizes: %.3f", mean)
	}
	fmt.Fprintln(w)
}

// WrongOf returns how many of Shunt's ways to do the rows gave a wrong result.
func WrongOf(rows []Row) int {
	wrong := 0
	for _, row := range rows {
		for _, p := range row.Peers {
			if p.Wrong > 0 && p.Name != NCCL && p.Name != NCCLWindow {
				wrong++
			}
		}
	}
	return wrong
}
