// Package peertable has the form of a comparison with other libraries: the file of `shunt bench-peers --write`, and the
// Markdown tables made of it. How times are measured does not belong here.
package peertable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/internal/outfile"
)

// Results are the times of one run on one machine.
type Results struct {
	Machine   string   `json:"machine"` // name of its processor
	CPUs      int      `json:"cpus"`
	Reference string   `json:"reference"` // the contender that the others are compared with
	Against   []string `json:"against"`
	Rows      []Row    `json:"rows"`
}

// Row has one size of one collective of one world.
type Row struct {
	World        int                `json:"world"`
	Collective   string             `json:"collective"`
	Bytes        int64              `json:"bytes"`
	Microseconds map[string]float64 `json:"us"`    // by contender
	Ratio        map[string]float64 `json:"ratio"` // by other contender: its time over the reference's, before rounding
}

// Read returns the results in a file.
func Read(path string) (Results, error) {
	var r Results
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// Write writes the results to a file, a row a line, with four digits behind the point.
func (r Results) Write(path string) error {
	rows := r.Rows
	r.Rows = nil
	head, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	var text bytes.Buffer
	text.Write(bytes.TrimSuffix(head, []byte("null\n}")))
	for i, row := range rows {
		row.Microseconds, row.Ratio = rounded(row.Microseconds), rounded(row.Ratio)
		line, err := json.Marshal(row)
		if err != nil {
			return err
		}
		text.WriteString([]string{"[\n  ", ",\n  "}[min(i, 1)])
		text.Write(line)
	}
	text.WriteString("\n ]\n}\n")
	return outfile.Write(path, text.Bytes())
}

func rounded(values map[string]float64) map[string]float64 {
	short := map[string]float64{}
	for name, v := range values {
		short[name] = math.Round(v*1e4) / 1e4
	}
	return short
}

// Tables writes Markdown tables, one for each world and other contender: sizes down, collectives across; a cell is the
// ratio and both times.
func (r Results) Tables(w io.Writer) {
	var worlds []int
	var collectives []string
	var sizes []int64
	for _, row := range r.Rows {
		worlds, sizes = append(worlds, row.World), append(sizes, row.Bytes)
		if !slices.Contains(collectives, row.Collective) {
			collectives = append(collectives, row.Collective)
		}
	}
	slices.Sort(worlds)
	slices.Sort(sizes)
	for _, world := range slices.Compact(worlds) {
		for _, other := range r.Against {
			fmt.Fprintf(w, "%d ranks, %s over %s: ratio of times (µs: %s / %s); above 1 %s is faster\n\n", world, other,
				r.Reference, other, r.Reference, r.Reference)
			r.table(w, world, other, collectives, slices.Compact(sizes))
		}
	}
}

func (r Results) table(w io.Writer, world int, other string, collectives []string, sizes []int64) {
	fmt.Fprintf(w, "| bytes | %s |\n|---:|%s\n", strings.Join(collectives, " | "),
		strings.Repeat("---:|", len(collectives)))
	ratios := map[string][]float64{}
	for _, size := range sizes {
		cells, measured := []string{selector.FormatSize(size)}, false
		for _, collective := range collectives {
			i := slices.IndexFunc(r.Rows, func(row Row) bool {
				return row.World == world && row.Collective == collective && row.Bytes == size && row.Ratio[other] > 0
			})
			if i < 0 {
				cells = append(cells, "")
				continue
			}
			measured = true
			row := r.Rows[i]
			ratios[collective] = append(ratios[collective], row.Ratio[other])
			cells = append(cells, fmt.Sprintf("%.2f (%s / %s)", row.Ratio[other], threeDigits(row.Microseconds[other]),
				threeDigits(row.Microseconds[r.Reference])))
		}
		if measured {
			fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
		}
	}
	fmt.Fprint(w, "| geometric mean |")
	for _, collective := range collectives {
		fmt.Fprintf(w, " **%.2f** |", geometricMean(ratios[collective]))
	}
	fmt.Fprint(w, "\n| lowest |")
	for _, collective := range collectives {
		fmt.Fprintf(w, " %.2f |", slices.Min(append(ratios[collective], math.Inf(1))))
	}
	fmt.Fprint(w, "\n\n")
}

func geometricMean(ratios []float64) float64 {
	sum := 0.0
	for _, r := range ratios {
		sum += math.Log(r)
	}
	return math.Exp(sum / float64(len(ratios)))
}

// threeDigits returns a time with three significant digits.
func threeDigits(us float64) string {
	switch {
	case us < 10:
		return strconv.FormatFloat(us, 'f', 2, 64)
	case us < 100:
		return strconv.FormatFloat(us, 'f', 1, 64)
	}
	return strconv.FormatFloat(us, 'f', 0, 64)
}
