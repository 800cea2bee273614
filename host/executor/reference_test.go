package executor

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"

	"github.com/shunt-ccl/shunt/plugin"
)

// The reference: reductions said once more, from the definitions of the
// formats, in float64 arithmetic and by searching tables of all codes, so that
// it shares no trick with the C.

// minifloat is a binary format of at most 16 bits.
type minifloat struct {
	exponent, mantissa int
	infinity           bool // the largest exponent is for infinity and NaN; else only all ones is NaN
	values             []float64
}

var minifloats = map[plugin.DType]*minifloat{
	plugin.Float16:    newMinifloat(5, 10, true),
	plugin.Bfloat16:   newMinifloat(8, 7, true),
	plugin.Float8E4m3: newMinifloat(4, 3, false),
	plugin.Float8E5m2: newMinifloat(5, 2, true),
}

func newMinifloat(exponent, mantissa int, infinity bool) *minifloat {
	f := &minifloat{exponent: exponent, mantissa: mantissa, infinity: infinity}
	for code := uint16(0); ; code++ { // finite, positive, ascending
		v := f.decode(code)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return f
		}
		f.values = append(f.values, v)
	}
}

func (f *minifloat) bits() int { return 1 + f.exponent + f.mantissa }

func (f *minifloat) decode(code uint16) float64 {
	sign := 1.0
	if code>>(f.bits()-1)&1 == 1 {
		sign = -1
	}
	e := int(code>>f.mantissa) & (1<<f.exponent - 1)
	m := int(code) & (1<<f.mantissa - 1)
	bias := 1<<(f.exponent-1) - 1
	last := e == 1<<f.exponent-1
	switch {
	case last && f.infinity && m == 0:
		return math.Inf(int(sign))
	case last && (f.infinity || m == 1<<f.mantissa-1):
		return math.NaN()
	case e == 0:
		return sign * math.Ldexp(float64(m), 1-bias-f.mantissa)
	}
	return sign * math.Ldexp(float64(m+1<<f.mantissa), e-bias-f.mantissa)
}

// encode finds the nearest code, the even one of two; NaN gives any NaN.
func (f *minifloat) encode(v float64) uint16 {
	sign := uint16(0)
	if math.Signbit(v) {
		sign = 1 << (f.bits() - 1)
	}
	if math.IsNaN(v) {
		return sign | (1<<(f.bits()-1) - 1)
	}
	a := math.Abs(v)
	above := sort.SearchFloat64s(f.values, a) // first value ≥ a
	if above == 0 {
		return sign
	}
	if above == len(f.values) {
		largest := f.values[above-1]
		half := (largest - f.values[above-2]) / 2
		if f.infinity && a >= largest+half { // the tie goes up: the largest code is odd
			return sign | uint16(above)
		}
		return sign | uint16(above-1)
	}
	down, up := a-f.values[above-1], f.values[above]-a
	if down < up || (down == up && (above-1)%2 == 0) {
		above--
	}
	return sign | uint16(above)
}

// element reads and writes element i of b as a uint64 of its bits.
func element(b []byte, size, i int) uint64 {
	switch size {
	case 1:
		return uint64(b[i])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b[2*i:]))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return binary.LittleEndian.Uint64(b[8*i:])
}

func appendElement(b []byte, size int, bits uint64) []byte {
	return append(b, binary.LittleEndian.AppendUint64(nil, bits)[:size]...)
}

// referenceReduce returns one element of a reduction: bits of the sources in order,
// and the factor of each, or nil.
func referenceReduce(dtype plugin.DType, op plugin.Op, world int, sources []uint64, factors []float64) uint64 {
	if factors != nil {
		scaled := make([]uint64, len(sources))
		for i, s := range sources {
			scaled[i] = referenceScale(dtype, s, factors[i])
		}
		sources = scaled
	}
	switch dtype {
	case plugin.Float64:
		return math.Float64bits(referenceFold(op, float64(world), sources, math.Float64frombits))
	case plugin.Float32:
		return uint64(math.Float32bits(referenceFold(op, float32(world), sources,
			func(s uint64) float32 { return math.Float32frombits(uint32(s)) })))
	case plugin.Int8:
		return uint64(uint8(referenceInteger(op, sources, func(s uint64) int8 { return int8(s) },
			func(s int8) int8 { return int8(int64(s) / int64(world)) })))
	case plugin.Uint8:
		return uint64(referenceInteger(op, sources, func(s uint64) uint8 { return uint8(s) },
			func(s uint8) uint8 { return uint8(int64(s) / int64(world)) }))
	case plugin.Int32:
		return uint64(uint32(referenceInteger(op, sources, func(s uint64) int32 { return int32(s) },
			func(s int32) int32 { return s / int32(world) })))
	case plugin.Uint32:
		return uint64(referenceInteger(op, sources, func(s uint64) uint32 { return uint32(s) },
			func(s uint32) uint32 { return s / uint32(world) }))
	case plugin.Int64:
		return uint64(referenceInteger(op, sources, func(s uint64) int64 { return int64(s) },
			func(s int64) int64 { return s / int64(world) }))
	case plugin.Uint64:
		return referenceInteger(op, sources, func(s uint64) uint64 { return s },
			func(s uint64) uint64 { return s / uint64(world) })
	}
	f := minifloats[dtype]
	sum := referenceFold(op, float32(world), sources, func(s uint64) float32 { return float32(f.decode(uint16(s))) })
	return uint64(f.encode(float64(sum)))
}

func referenceFold[F float32 | float64](op plugin.Op, world F, sources []uint64, value func(uint64) F) F {
	acc := value(sources[0])
	for _, s := range sources[1:] {
		v := value(s)
		switch op {
		case plugin.OpProd:
			acc *= v
		case plugin.OpMax, plugin.OpMin:
			better := v > acc
			if op == plugin.OpMin {
				better = v < acc
			}
			if acc == acc && (v != v || better) {
				acc = v
			}
		default:
			acc += v
		}
	}
	if op == plugin.OpAvg {
		acc /= world
	}
	return acc
}

func referenceInteger[I int8 | uint8 | int32 | uint32 | int64 | uint64](op plugin.Op, sources []uint64,
	value func(uint64) I, divide func(I) I) I {
	acc := value(sources[0])
	for _, s := range sources[1:] {
		switch v := value(s); op {
		case plugin.OpProd:
			acc *= v
		case plugin.OpMax:
			acc = max(acc, v)
		case plugin.OpMin:
			acc = min(acc, v)
		default:
			acc += v
		}
	}
	if op == plugin.OpAvg {
		acc = divide(acc)
	}
	return acc
}

func referenceScale(dtype plugin.DType, bits uint64, factor float64) uint64 {
	switch dtype {
	case plugin.Float64:
		return math.Float64bits(math.Float64frombits(bits) * factor)
	case plugin.Float32:
		return uint64(math.Float32bits(math.Float32frombits(uint32(bits)) * float32(factor)))
	case plugin.Int8:
		return uint64(uint8(scaleInteger(int8(bits), factor, math.MinInt8, math.MaxInt8)))
	case plugin.Uint8:
		return uint64(scaleInteger(uint8(bits), factor, 0, math.MaxUint8))
	case plugin.Int32:
		return uint64(uint32(scaleInteger(int32(bits), factor, math.MinInt32, math.MaxInt32)))
	case plugin.Uint32:
		return uint64(scaleInteger(uint32(bits), factor, 0, math.MaxUint32))
	case plugin.Int64:
		return uint64(scaleInteger(int64(bits), factor, math.MinInt64, math.MaxInt64))
	case plugin.Uint64:
		return scaleInteger(bits, factor, 0, math.MaxUint64)
	}
	f := minifloats[dtype]
	return uint64(f.encode(float64(float32(f.decode(uint16(bits))) * float32(factor))))
}

func scaleInteger[I int8 | uint8 | int32 | uint32 | int64 | uint64](v I, factor float64, least, most I) I {
	if math.Abs(factor) < 1<<63 && factor == math.Trunc(factor) {
		return I(uint64(v) * uint64(int64(factor)))
	}
	product := math.RoundToEven(float64(v) * factor)
	switch {
	case math.IsNaN(product):
		return 0
	case product >= float64(most):
		return most
	case product <= float64(least):
		return least
	}
	return I(product)
}

// sameElement compares bits, taking all NaNs for one.
func sameElement(dtype plugin.DType, a, b uint64) bool {
	return a == b || (isNaN(dtype, a) && isNaN(dtype, b))
}

func isNaN(dtype plugin.DType, bits uint64) bool {
	switch dtype {
	case plugin.Float64:
		return math.IsNaN(math.Float64frombits(bits))
	case plugin.Float32:
		f := math.Float32frombits(uint32(bits))
		return f != f
	}
	f, ok := minifloats[dtype]
	return ok && math.IsNaN(f.decode(uint16(bits)))
}

func show(dtype plugin.DType, bits uint64) string {
	if f, ok := minifloats[dtype]; ok {
		return fmt.Sprintf("%#x (%v)", bits, f.decode(uint16(bits)))
	}
	switch dtype {
	case plugin.Float64:
		return fmt.Sprintf("%#x (%v)", bits, math.Float64frombits(bits))
	case plugin.Float32:
		return fmt.Sprintf("%#x (%v)", bits, math.Float32frombits(uint32(bits)))
	}
	return fmt.Sprintf("%#x", bits)
}
