package selector

import (
	"math"

	"github.com/shunt-ccl/shunt/plugin"
)

// knot begins a straight piece of a cost curve: from `from` bytes on, the cost
// is base + slope × bytes, in microseconds.
type knot struct {
	from        int64
	base, slope float64
}

// curve is a cost as a function of bytes, piece by piece, ascending; the first
// piece begins at 0.
//
// Costs decide what all ranks do, so they must be the same to the last bit on
// every machine of a job. Go may fuse a multiplication and an addition on some
// architectures; the explicit float64 conversions below forbid it.
type curve []knot

// staticCurve returns a transport's own estimate: latency + bytes / bandwidth.
func staticCurve(a plugin.Algorithm) curve {
	return curve{{from: 0, base: a.Latency, slope: 1 / a.Bandwidth}}
}

// pointCurve interpolates measured points: level before the first, straight
// between neighbours, and on past the last with the slope of the last two (not
// falling), or proportionally where there is only one.
func pointCurve(points []Point) curve {
	first := points[0]
	c := curve{{from: 0, base: first.Microseconds}}
	slope := 0.0
	for i := 1; i < len(points); i++ {
		a, b := points[i-1], points[i]
		slope = (b.Microseconds - a.Microseconds) / float64(b.Bytes-a.Bytes)
		c = append(c, through(a, slope))
	}
	last := points[len(points)-1]
	if len(points) == 1 {
		slope = last.Microseconds / float64(max(last.Bytes, 1))
	}
	return append(c, through(last, math.Max(slope, 0)))
}

// through returns the piece that begins at a point with a slope.
func through(p Point, slope float64) knot {
	return knot{from: p.Bytes, base: p.Microseconds - float64(slope*float64(p.Bytes)), slope: slope}
}

// at returns the piece that holds for a size.
func (c curve) at(bytes int64) knot {
	k := c[0]
	for _, next := range c[1:] {
		if bytes < next.from {
			break
		}
		k = next
	}
	return k
}

// cost returns the cost at a size, in microseconds.
func (c curve) cost(bytes int64) float64 {
	k := c.at(bytes)
	return k.base + float64(k.slope*float64(bytes))
}

// crossing lists the sizes around the crossing of two lines at which the order
// of their costs may change. Rounding can move the change a little, so the
// neighbours of the computed crossing are listed too.
func crossing(a, b knot) []int64 {
	if a.slope == b.slope {
		return nil
	}
	x := math.Floor((a.base - b.base) / (b.slope - a.slope))
	if !(x >= 0 && x < 1<<62) {
		return nil
	}
	return []int64{int64(x) - 1, int64(x), int64(x) + 1, int64(x) + 2}
}
