package conformance

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/shunt-ccl/shunt/plugin"
)

// floating describes a floating-point format of 16 or fewer bits. The suite
// converts by definition, in float64 and step by step, so that it shares no
// trick and no mistake with the code it tests.
type floating struct {
	exponent, mantissa int
	bias               int
	largest            float64
	saturates          bool // overflow gives the largest value, not infinity
	nan                uint64
}

var formats = map[plugin.DType]floating{
	plugin.Float16:    {exponent: 5, mantissa: 10, bias: 15, largest: 65504, nan: 0x7e00},
	plugin.Bfloat16:   {exponent: 8, mantissa: 7, bias: 127, largest: 0x1.fep127, nan: 0x7fc0},
	plugin.Float8E4m3: {exponent: 4, mantissa: 3, bias: 7, largest: 448, saturates: true, nan: 0x7f},
	plugin.Float8E5m2: {exponent: 5, mantissa: 2, bias: 15, largest: 57344, nan: 0x7e},
}

// encode rounds to nearest, ties to even.
func (f floating) encode(v float64) uint64 {
	sign := uint64(0)
	if math.Signbit(v) {
		sign = 1 << (f.exponent + f.mantissa)
	}
	if math.IsNaN(v) {
		return f.nan
	}
	v = math.Abs(v)
	if v == 0 {
		return sign
	}
	infinity := uint64(1<<f.exponent-1) << f.mantissa
	overflow := infinity
	if f.saturates {
		overflow = f.bits(f.largest)
	}
	if math.IsInf(v, 0) {
		return sign | overflow
	}
	_, e := math.Frexp(v) // v = m × 2^e, 0.5 ≤ m < 1
	e = max(e-1, 1-f.bias)
	quantum := math.Ldexp(1, e-f.mantissa)
	v = math.RoundToEven(v/quantum) * quantum // exact: powers of two
	if v > f.largest {
		return sign | overflow
	}
	return sign | f.bits(v)
}

// bits encodes a value that the format can represent, without its sign.
func (f floating) bits(v float64) uint64 {
	if v == 0 {
		return 0
	}
	_, e := math.Frexp(v)
	e--
	if e < 1-f.bias { // subnormal
		return uint64(math.Ldexp(v, f.bias-1+f.mantissa))
	}
	fraction := math.Ldexp(v, -e) - 1
	return uint64(e+f.bias)<<f.mantissa | uint64(math.Ldexp(fraction, f.mantissa))
}

func (f floating) decode(b uint64) float64 {
	sign := 1.0
	if b>>(f.exponent+f.mantissa)&1 != 0 {
		sign = -1
	}
	e := int(b >> f.mantissa & (1<<f.exponent - 1))
	m := float64(b & (1<<f.mantissa - 1))
	top := 1<<f.exponent - 1
	switch {
	case e == top && !f.saturates && m == 0:
		return sign * math.Inf(1)
	case e == top && !f.saturates:
		return math.NaN()
	case f.saturates && b&(1<<(f.exponent+f.mantissa)-1) == f.nan:
		return math.NaN() // E4M3 has one NaN and no infinity
	case e == 0:
		return sign * math.Ldexp(m, 1-f.bias-f.mantissa)
	}
	return sign * math.Ldexp(1+math.Ldexp(m, -f.mantissa), e-f.bias)
}

// bits are the bits of one element, in the low end.
func loadBits(b []byte, size int64) uint64 {
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

func storeBits(b []byte, size int64, v uint64) {
	switch size {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, v)
	}
}

func isFloat(d plugin.DType) bool {
	_, small := formats[d]
	return small || d == plugin.Float32 || d == plugin.Float64
}

func isSigned(d plugin.DType) bool {
	switch d {
	case plugin.Uint8, plugin.Uint32, plugin.Uint64:
		return false
	}
	return true
}

// floatBits rounds v to a floating dtype.
func floatBits(d plugin.DType, v float64) uint64 {
	switch d {
	case plugin.Float32:
		return uint64(math.Float32bits(float32(v)))
	case plugin.Float64:
		return math.Float64bits(v)
	}
	return formats[d].encode(v)
}

// floatValue returns the value of a floating element.
func floatValue(d plugin.DType, bits uint64) float64 {
	switch d {
	case plugin.Float32:
		return float64(math.Float32frombits(uint32(bits)))
	case plugin.Float64:
		return math.Float64frombits(bits)
	}
	return formats[d].decode(bits)
}

// wrap cuts an integer to its dtype and extends it to 64 bits again.
func wrap(d plugin.DType, v int64) int64 {
	switch d {
	case plugin.Int8:
		return int64(int8(v))
	case plugin.Uint8:
		return int64(uint8(v))
	case plugin.Int32:
		return int64(int32(v))
	case plugin.Uint32:
		return int64(uint32(v))
	}
	return v
}

// format shows one element as a number and as bits.
func format(d plugin.DType, bits uint64) string {
	width := int(d.Bytes()) * 2
	switch {
	case isFloat(d):
		return fmt.Sprintf("%g (0x%0*x)", floatValue(d, bits), width, bits)
	case d == plugin.Uint64:
		return fmt.Sprintf("%d (0x%0*x)", bits, width, bits)
	}
	return fmt.Sprintf("%d (0x%0*x)", wrap(d, int64(bits)), width, bits)
}
