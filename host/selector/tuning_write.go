package selector

import (
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

// Cost returns the cost at a size, in microseconds, that points of an entry stand for.
func Cost(points []Point, bytes int64) float64 { return pointCurve(points).cost(bytes) }

// NominalBytes is the size by whose costs that choice is made for which
// OneForAll holds.
const NominalBytes = nominalBytes

// OneForAll reports whether ranks may see different sizes of one call, so that
// one algorithm serves all sizes.
func OneForAll(c plugin.Collective) bool { return sizesDiffer(c) }
