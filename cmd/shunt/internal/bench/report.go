package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

// Table writes rows as they come, in the columns of nccl-tests.
type Table struct {
	To      io.Writer
	Config  Config
	started bool
	last    string  // collective of the last row
	wrong   int64   // over all rows
	busbw   float64 // sum over all timings
	timings int
}

// Row writes one row.
func (t *Table) Row(r Row) {
	if !t.started {
		t.started = true
		t.head()
	}
	title := r.Collective
	if r.Mode != "" {
		title += " (" + string(r.Mode) + ")"
	}
	if title != t.last {
		t.last = title
		fmt.Fprintf(t.To, "# %s\n", title)
	}
	if r.Skipped != "" {
		fmt.Fprintf(t.To, "# %d bytes: not measured: %s\n", r.Bytes, strings.ReplaceAll(r.Skipped, "\n", " "))
		return
	}
	fmt.Fprintf(t.To, "%13d %13d %9s %10s %6d%s%s%s  %s\n", r.Bytes, r.Count, r.DType, r.Op, r.Root,
		t.timing(r.OutOfPlace), t.timing(r.InPlace), t.peers(&r), r.Algorithm)
}

// peers are the columns of what is compared.
func (t *Table) peers(r *Row) string {
	if t.Config.Memory != plugin.MemoryKindCuda {
		return ""
	}
	main := r.OutOfPlace
	if main == nil {
		main = r.InPlace
	}
	text := fmt.Sprintf(" %9s", short(main.P99))
	if t.Config.Against == "" {
		return text
	}
	var cells strings.Builder
	for _, name := range []string{"nccl", "nccl window"} {
		cell := "-"
		for _, p := range r.Peers {
			switch {
			case p.Name == name && p.Wrong > 0:
				cell = "wrong"
			case p.Name == name:
				cell = short(p.Microseconds)
			}
		}
		fmt.Fprintf(&cells, " %9s", cell)
	}
	ratio := "-"
	if best := r.Best(); best > 0 && r.OutOfPlace != nil {
		ratio = fmt.Sprintf("%.2f", best/r.OutOfPlace.Microseconds)
	}
	return text + cells.String() + fmt.Sprintf(" %7s", ratio)
}

func (t *Table) head() {
	w := t.To
	fmt.Fprintf(w, "# shunt bench: %d ranks, sizes %d to %d bytes, factor %d\n", t.Config.World, t.Config.Min, t.Config.Max, t.Config.Factor)
	fmt.Fprintf(w, "# time: of one operation, slowest rank, median of batches; #wrong: elements that are not exactly what they must be, over all ranks\n")
	if t.Config.Memory == plugin.MemoryKindCuda {
		fmt.Fprintf(w, "# on GPUs; graph: replayed, eager: called one by one; p99: of the same batches\n")
		if t.Config.Busy > 0 {
			fmt.Fprintf(w, "# other work keeps %d %% of the multiprocessors busy\n", t.Config.Busy)
		}
		if t.Config.Against != "" {
			fmt.Fprintf(w, "# nccl: plain memory; window: registered memory; ratio: the better of them / Shunt, out of place; above 1 Shunt is faster\n")
		}
	}
	fmt.Fprintf(w, "#\n")
	fmt.Fprintf(w, "#%55s%38s%38s\n", "", "out-of-place           ", "in-place            ")
	fmt.Fprintf(w, "#%12s %13s %9s %10s %6s", "size", "count", "type", "redop", "root")
	for range 2 {
		fmt.Fprintf(w, " %9s %8s %8s %8s", "time", "algbw", "busbw", "#wrong")
	}
	extra, units := "", ""
	if t.Config.Memory == plugin.MemoryKindCuda {
		extra, units = fmt.Sprintf(" %9s", "p99"), fmt.Sprintf(" %9s", "(us)")
		if t.Config.Against != "" {
			extra += fmt.Sprintf(" %9s %9s %7s", "nccl", "window", "ratio")
			units += fmt.Sprintf(" %9s %9s %7s", "(us)", "(us)", "")
		}
	}
	fmt.Fprintf(w, "%s  %s\n", extra, "algorithm")
	fmt.Fprintf(w, "#%12s %13s %9s %10s %6s", "(B)", "(elements)", "", "", "")
	for range 2 {
		fmt.Fprintf(w, " %9s %8s %8s %8s", "(us)", "(GB/s)", "(GB/s)", "")
	}
	fmt.Fprintln(w, units)
}

func (t *Table) timing(m *Timing) string {
	if m == nil {
		return fmt.Sprintf(" %9s %8s %8s %8s", "-", "-", "-", "-")
	}
	t.wrong += m.Wrong
	t.busbw += m.Busbw
	t.timings++
	wrong := strconv.FormatInt(m.Wrong, 10)
	if t.Config.NoCheck {
		wrong = "N/A"
	}
	return fmt.Sprintf(" %9s %8.2f %8.2f %8s", short(m.Microseconds), m.Algbw, m.Busbw, wrong)
}

// short is a time with four digits or so.
func short(us float64) string {
	switch {
	case us < 100:
		return strconv.FormatFloat(us, 'f', 2, 64)
	case us < 10000:
		return strconv.FormatFloat(us, 'f', 1, 64)
	}
	return strconv.FormatFloat(us, 'f', 0, 64)
}

// Wrong is the number of wrong elements so far.
func (t *Table) Wrong() int64 { return t.wrong }

// End writes the summary.
func (t *Table) End() {
	if t.timings == 0 {
		return
	}
	verdict := "OK"
	if t.wrong > 0 {
		verdict = "FAILED"
	}
	if t.Config.NoCheck {
		fmt.Fprintf(t.To, "# results were not checked\n")
	} else {
		fmt.Fprintf(t.To, "# #wrong over all rows : %d %s\n", t.wrong, verdict)
	}
	fmt.Fprintf(t.To, "# average bus bandwidth : %.3f GB/s\n", t.busbw/float64(t.timings))
}
