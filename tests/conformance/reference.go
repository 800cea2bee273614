package conformance

import (
	"math"

	"github.com/shunt-ccl/shunt/plugin"
)

// reduceReference returns the expected reduction of one element: the sources in rank
// order, accumulated as the table of dtypes says, with premul_sum's products rounded to
// the dtype before they are summed. scalars has one for each rank; only premul_sum uses
// them.
func reduceReference(d plugin.DType, op plugin.Op, sources []uint64, scalars []float64) uint64 {
	switch {
	case !isFloat(d):
		return reduceIntegers(d, op, sources, scalars)
	case d == plugin.Float64:
		return reduceDoubles(op, sources, scalars)
	}
	value := func(rank int) float32 {
		v := floatValue(d, sources[rank])
		if op == plugin.OpPremulSum {
			v = floatValue(d, floatBits(d, v*scalars[rank]))
		}
		return float32(v)
	}
	acc := value(0)
	for rank := 1; rank < len(sources); rank++ {
		v := value(rank)
		// Explicit conversions keep the compiler from fusing operations.
		switch op {
		case plugin.OpSum, plugin.OpAvg, plugin.OpPremulSum:
			acc = float32(acc + v)
		case plugin.OpProd:
			acc = float32(acc * v)
		case plugin.OpMax:
			acc = max(acc, v) // NaN if either is, unlike math.Max
		case plugin.OpMin:
			acc = min(acc, v)
		}
	}
	if op == plugin.OpAvg {
		acc = float32(acc / float32(len(sources)))
	}
	return floatBits(d, float64(acc))
}

func reduceDoubles(op plugin.Op, sources []uint64, scalars []float64) uint64 {
	value := func(rank int) float64 {
		v := math.Float64frombits(sources[rank])
		if op == plugin.OpPremulSum {
			v = float64(v * scalars[rank])
		}
		return v
	}
	acc := value(0)
	for rank := 1; rank < len(sources); rank++ {
		v := value(rank)
		switch op {
		case plugin.OpSum, plugin.OpAvg, plugin.OpPremulSum:
			acc = float64(acc + v)
		case plugin.OpProd:
			acc = float64(acc * v)
		case plugin.OpMax:
			acc = max(acc, v)
		case plugin.OpMin:
			acc = min(acc, v)
		}
	}
	if op == plugin.OpAvg {
		acc = float64(acc / float64(len(sources)))
	}
	return math.Float64bits(acc)
}

func reduceIntegers(d plugin.DType, op plugin.Op, sources []uint64, scalars []float64) uint64 {
	value := func(rank int) int64 {
		v := wrap(d, int64(sources[rank]))
		if op == plugin.OpPremulSum {
			v = wrap(d, v*int64(scalars[rank])) // scalars are whole for integers
		}
		return v
	}
	less := func(a, b int64) bool {
		if d == plugin.Uint64 {
			return uint64(a) < uint64(b)
		}
		return a < b
	}
	acc := value(0)
	for rank := 1; rank < len(sources); rank++ {
		v := value(rank)
		switch op {
		case plugin.OpSum, plugin.OpAvg, plugin.OpPremulSum:
			acc = wrap(d, acc+v)
		case plugin.OpProd:
			acc = wrap(d, acc*v)
		case plugin.OpMax:
			if less(acc, v) {
				acc = v
			}
		case plugin.OpMin:
			if less(v, acc) {
				acc = v
			}
		}
	}
	if op == plugin.OpAvg {
		if d == plugin.Uint64 {
			acc = int64(uint64(acc) / uint64(len(sources)))
		} else {
			acc /= int64(len(sources)) // Go truncates toward zero
		}
	}
	mask := ^uint64(0)
	if bits := d.Bytes() * 8; bits < 64 {
		mask = 1<<bits - 1
	}
	return uint64(acc) & mask
}
