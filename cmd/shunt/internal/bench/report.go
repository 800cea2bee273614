package bench

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/shunt-ccl/shunt/plugin"
)

// Table writes rows as they come, in the columns of nccl-tests.
type Table struct {
	To      io.Writer
	Config  Config
	Bound   bool // each rank has a CPU of its own
	started bool
	last    string  // collective of the last row
	wrong   int64   // over all rows
	busbw   float64 // sum over all timings
	timings int
	failed  []string // collectives
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
	for _, p := range r.Peers {
		if p.Name != NCCL && p.Name != NCCLWindow {
			t.wrong += p.Wrong
		}
	}
	if r.Covered != nil && *r.Covered < 0.9 {
		fmt.Fprintf(t.To, "# only %.0f %% of these batches ran beside other work from beginning to end\n", 100**r.Covered)
	}
}

// Failed notes that a collective ended with an error, behind the rows that it
// gave.
func (t *Table) Failed(collective string, err error) {
	lines := strings.Split(err.Error(), "\n")
	why := lines[0]
	for _, line := range lines {
		// What a rank said tells more than that it ended.
		if strings.HasPrefix(line, "bench: rank ") {
			why = line
			break
		}
	}
	fmt.Fprintf(t.To, "# %s FAILED: %s\n", collective, why)
	t.failed = append(t.failed, collective)
}

// peers returns the columns of what is compared.
func (t *Table) peers(r *Row) string {
	if t.Config.Memory != plugin.MemoryKindCuda {
		return ""
	}
	main := r.OutOfPlace
	if main == nil {
		main = r.InPlace
	}
	var cells strings.Builder
	fmt.Fprintf(&cells, " %9s", short(main.P99))
	for _, name := range t.Config.Rivals() {
		cell := "-"
		if p := r.Peer(name); p != nil {
			cell = short(p.Microseconds)
			if p.Wrong > 0 {
				cell = "wrong"
			}
		}
		fmt.Fprintf(&cells, " %9s", cell)
	}
	for _, name := range t.Config.ratios() {
		other, ours := 0.0, r.Ours()
		if name == NCCL {
			other, _ = r.Best()
		} else if p := r.Peer(name); p != nil && r.OutOfPlace != nil {
			other, ours = p.Microseconds, r.OutOfPlace.Microseconds
		}
		cell := "-"
		if other > 0 && ours > 0 {
			cell = fmt.Sprintf("%.2f", other/ours)
		}
		fmt.Fprintf(&cells, " %7s", cell)
	}
	return cells.String()
}

// ratios returns the names of the rivals to whose times rows have a ratio.
func (c *Config) ratios() []string {
	var names []string
	for _, name := range c.Rivals() {
		if name != NCCLWindow && name != Symmetric {
			names = append(names, name)
		}
	}
	return names
}

// Bound is the line of tables whose ranks are bound.
const Bound = "# each rank is bound to a CPU of its own; --bind=false leaves it to the system, as shunt run does"

func (t *Table) head() {
	w := t.To
	fmt.Fprintf(w, "# shunt bench: %d ranks, sizes %d to %d bytes, factor %d\n", t.Config.World, t.Config.Min,
		t.Config.Max, t.Config.Factor)
	fmt.Fprintf(w, "# time: of one operation, slowest rank, median of batches; #wrong: elements that are not exactly what they must be, over all ranks\n")
	if t.Bound {
		fmt.Fprintln(w, Bound)
	}
	if t.Config.Memory == plugin.MemoryKindCuda {
		fmt.Fprintf(w, "# on GPUs; graph: replayed, eager: called one by one; p99: of the same batches\n")
		if t.Config.Busy > 0 {
			fmt.Fprintf(w, "# beside kernels of 0.1 ms that hold %d %% of the multiprocessors\n", t.Config.Busy)
		}
		if slices.Contains(t.Config.Against, NCCL) {
			fmt.Fprintf(w, "# nccl: plain memory; window: registered as a symmetric window; ratio: the better of them / the better of Shunt's, out of place; above 1 Shunt is faster\n")
		}
		if t.Config.Symmetric {
			fmt.Fprintf(w, "# symmetric: Shunt, in windows, whose memory is symmetric\n")
		}
		for _, name := range t.Config.Against {
			if name != NCCL {
				fmt.Fprintf(w, "# %s: Shunt over %s, in turn in the same processes; its ratio: its time / Shunt's\n",
					t.Config.carrier(name), name)
			}
		}
	}
	fmt.Fprintf(w, "#\n")
	fmt.Fprintf(w, "#%55s%38s%38s\n", "", "out-of-place           ", "in-place            ")
	fmt.Fprintf(w, "#%12s %13s %9s %10s %6s", "size", "count", "type", "redop", "root")
	for range 2 {
		fmt.Fprintf(w, " %9s %8s %8s %8s", "time", "algbw", "busbw", "#wrong")
	}
	var extra, units strings.Builder
	if t.Config.Memory == plugin.MemoryKindCuda {
		fmt.Fprintf(&extra, " %9s", "p99")
		fmt.Fprintf(&units, " %9s", "(us)")
		for _, name := range t.Config.Rivals() {
			fmt.Fprintf(&extra, " %9s", strings.TrimPrefix(name, "nccl "))
			fmt.Fprintf(&units, " %9s", "(us)")
		}
		for range t.Config.ratios() {
			fmt.Fprintf(&extra, " %7s", "ratio")
			fmt.Fprintf(&units, " %7s", "")
		}
	}
	fmt.Fprintf(w, "%s  %s\n", extra.String(), "algorithm")
	fmt.Fprintf(w, "#%12s %13s %9s %10s %6s", "(B)", "(elements)", "", "", "")
	for range 2 {
		fmt.Fprintf(w, " %9s %8s %8s %8s", "(us)", "(GB/s)", "(GB/s)", "")
	}
	fmt.Fprintln(w, units.String())
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

// short returns a time with four digits or so.
func short(us float64) string {
	switch {
	case us < 100:
		return strconv.FormatFloat(us, 'f', 2, 64)
	case us < 10000:
		return strconv.FormatFloat(us, 'f', 1, 64)
	}
	return strconv.FormatFloat(us, 'f', 0, 64)
}

// Wrong returns the number of wrong elements so far.
func (t *Table) Wrong() int64 { return t.wrong }

// End writes the summary.
func (t *Table) End() {
	if len(t.failed) > 0 {
		fmt.Fprintf(t.To, "# FAILED: %s\n", strings.Join(t.failed, ", "))
	}
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
