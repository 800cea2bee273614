package selector

import (
	"math"

	"github.com/shunt-ccl/shunt/internal/outfile"
	"github.com/shunt-ccl/shunt/plugin"
)

// WriteFile replaces the file in one step, so that a reader sees the old one or the whole new one; a device or FIFO is
// written in place. What ParseTuning would refuse is InvalidArgument and not written; other errors are System.
func (t *Tuning) WriteFile(path string) error {
	text, err := t.Marshal()
	if err != nil {
		return err
	}
	if _, err := ParseTuning(text); err != nil {
		return plugin.Errorf(plugin.InvalidArgument, "tuning file %s: %w", path, err)
	}
	if err := outfile.Write(path, text); err != nil {
		return plugin.Errorf(plugin.System, "tuning file %s: %w", path, err)
	}
	return nil
}

// outclassed is the cost of an algorithm whose measurement was given up, in times of the slowest measured one.
const outclassed = 8

// GivenUp continues the points of an algorithm that was too slow to be measured further, so that from its last measured
// size on it never costs less than the others, whose points continue. By itself its curve would continue as it ended,
// and one that ended level would win in the end. Points are ascending; others must have been measured at its last size
// too, and hold no points that GivenUp added.
func GivenUp(points []Point, others [][]Point) []Point {
	if len(points) == 0 {
		return points
	}
	steepest := 0.0 // of the others' pieces, so that none grows faster
	for _, other := range others {
		for i := 1; i < len(other); i++ {
			a, b := other[i-1], other[i]
			steepest = math.Max(steepest, (b.Microseconds-a.Microseconds)/float64(b.Bytes-a.Bytes))
		}
	}
	slowest := map[int64]float64{}
	last := points[len(points)-1]
	for _, other := range others {
		for _, p := range other {
			if p.Bytes > last.Bytes {
				slowest[p.Bytes] = math.Max(slowest[p.Bytes], p.Microseconds)
			}
		}
	}
	sizes := map[int64]bool{}
	for bytes := range slowest {
		sizes[bytes] = true
	}
	list := append([]Point(nil), points...)
	for _, bytes := range sorted(sizes) {
		rising := last.Microseconds + steepest*float64(bytes-last.Bytes)
		last = Point{Bytes: bytes, Microseconds: math.Max(outclassed*slowest[bytes], rising)}
		list = append(list, last)
	}
	return list
}

// NominalBytes is the size by whose costs that choice is made for which
// OneForAll holds.
const NominalBytes = nominalBytes

// OneForAll reports whether ranks may see different sizes of one call, so that
// one algorithm serves all sizes.
func OneForAll(c plugin.Collective) bool { return sizesDiffer(c) }
