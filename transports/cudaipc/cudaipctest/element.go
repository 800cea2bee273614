package cudaipctest

import (
	"encoding/binary"
	"math"

	"github.com/shunt-ccl/shunt/plugin"
)

// small describes a floating-point format of 8 or 16 bits.
type small struct {
	exponent, mantissa, bias int
	largest                  float64
	saturates                bool // overflow gives the largest value; there is no infinity
	nan                      uint64
}

var smalls = map[plugin.DType]small{
	plugin.Float16:    {5, 10, 15, 65504, false, 0x7e00},
	plugin.Bfloat16:   {8, 7, 127, 0x1.fep127, false, 0x7fc0},
	plugin.Float8E4m3: {4, 3, 7, 448, true, 0x7f},
	plugin.Float8E5m2: {5, 2, 15, 57344, false, 0x7e},
}

func (f small) decode(b uint64) float64 {
	e, m := int(b>>f.mantissa)&(1<<f.exponent-1), float64(b&(1<<f.mantissa-1))
	magnitude := b & (1<<(f.exponent+f.mantissa) - 1)
	v := math.Ldexp(1+math.Ldexp(m, -f.mantissa), e-f.bias)
	switch {
	case f.saturates && magnitude == f.nan:
		return math.NaN()
	case !f.saturates && e == 1<<f.exponent-1 && m != 0:
		return math.NaN()
	case !f.saturates && e == 1<<f.exponent-1:
		v = math.Inf(1)
	case e == 0:
		v = math.Ldexp(m, 1-f.bias-f.mantissa)
	}
	if b>>(f.exponent+f.mantissa) != 0 {
		v = -v
	}
	return v
}

// encode rounds to nearest, ties to even.
func (f small) encode(v float64) uint64 {
	if math.IsNaN(v) {
		return f.nan
	}
	sign := uint64(0)
	if math.Signbit(v) {
		sign = 1 << (f.exponent + f.mantissa)
	}
	v = math.Abs(v)
	if v == 0 {
		return sign
	}
	if v < math.Inf(1) {
		_, e := math.Frexp(v)
		quantum := math.Ldexp(1, max(e-1, 1-f.bias)-f.mantissa)
		v = math.RoundToEven(v/quantum) * quantum
	}
	if v == 0 { // rounded to it
		return sign
	}
	if v > f.largest {
		if !f.saturates {
			return sign | uint64(1<<f.exponent-1)<<f.mantissa
		}
		v = f.largest
	}
	// The bits of consecutive values are consecutive numbers.
	_, e := math.Frexp(v)
	if e--; e < 1-f.bias {
		return sign | uint64(math.Ldexp(v, f.bias-1+f.mantissa))
	}
	return sign | uint64(e+f.bias)<<f.mantissa | uint64(math.Ldexp(math.Ldexp(v, -e)-1, f.mantissa))
}

// Decode returns the number that the bits of a dtype stand for; those of 64-bit integers may be rounded.
func Decode(d plugin.DType, bits uint64) float64 {
	if f, isSmall := smalls[d]; isSmall {
		return f.decode(bits)
	}
	shift := 64 - 8*d.Bytes()
	switch d {
	case plugin.Float32:
		return float64(math.Float32frombits(uint32(bits)))
	case plugin.Float64:
		return math.Float64frombits(bits)
	case plugin.Uint8, plugin.Uint32, plugin.Uint64:
		return float64(bits << shift >> shift)
	}
	return float64(int64(bits<<shift) >> shift)
}

func loadBits(b []byte, size int64) uint64 {
	var word [8]byte
	copy(word[:], b[:size])
	return binary.LittleEndian.Uint64(word[:])
}

func storeBits(b []byte, size int64, v uint64) {
	copy(b[:size], binary.LittleEndian.AppendUint64(nil, v))
}

// reduceElement combines one element of every rank.
func reduceElement(d plugin.DType, op plugin.Op, bits []uint64, scalars []float64) uint64 {
	f, isSmall := smalls[d]
	switch {
	case d == plugin.Float64:
		return math.Float64bits(fold(op, bits, func(r int) float64 {
			return scaled(op, math.Float64frombits(bits[r]), scalars[r])
		}))
	case d == plugin.Float32:
		return uint64(math.Float32bits(fold(op, bits, func(r int) float32 {
			return float32(scaled(op, float64(math.Float32frombits(uint32(bits[r]))), scalars[r]))
		})))
	case isSmall:
		return f.encode(float64(fold(op, bits, func(r int) float32 {
			v := f.decode(bits[r])
			if op == plugin.OpPremulSum {
				v = f.decode(f.encode(scaled(op, v, scalars[r])))
			}
			return float32(v)
		})))
	}
	size := d.Bytes() * 8
	extend := func(v uint64) int64 { return int64(v<<(64-size)) >> (64 - size) }
	isUnsigned := d == plugin.Uint8 || d == plugin.Uint32 || d == plugin.Uint64
	switch {
	case op == plugin.OpAvg: // what is divided is the sum as it wraps in the dtype
		sum, n := reduceElement(d, plugin.OpSum, bits, scalars), len(bits)
		if isUnsigned {
			return sum / uint64(n)
		}
		return uint64(extend(sum)/int64(n)) & (^uint64(0) >> (64 - size))
	case isUnsigned:
		return fold(op, bits, func(r int) uint64 {
			return integer(op, bits[r],
				scalars[r]) & (^uint64(0) >> (64 - size))
		}) & (^uint64(0) >> (64 - size))
	}
	wide := fold(op, bits, func(r int) int64 { return extend(integer(op, uint64(extend(bits[r])), scalars[r])) })
	return uint64(wide) & (^uint64(0) >> (64 - size))
}

func scaled(op plugin.Op, v, scalar float64) float64 {
	if op == plugin.OpPremulSum {
		return float64(v * scalar) // not fused with the sum
	}
	return v
}

// integer scales by whole factors.
func integer(op plugin.Op, v uint64, scalar float64) uint64 {
	if op == plugin.OpPremulSum {
		return v * uint64(int64(scalar))
	}
	return v
}

type number interface {
	~int64 | ~uint64 | ~float32 | ~float64
}

// fold accumulates in rank order. Sums of integers wrap in 64 bits, which cut to
// fewer is the same as wrapping in those, except for max and min, whose operands
// fit, and for avg.
func fold[T number](op plugin.Op, bits []uint64, value func(int) T) T {
	acc := value(0)
	for r := 1; r < len(bits); r++ {
		switch v := value(r); op {
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
		acc /= T(len(bits))
	}
	return acc
}
