package conformance

import (
	"math"

	"github.com/shunt-ccl/shunt/plugin"
)

// Family says what numbers a case moves and reduces.
type Family string

// The families of input.
const (
	// Exact: small integers whose result every dtype represents, whatever the
	// order of accumulation; any other bit in the result is an error.
	Exact Family = "exact"
	// Rounding: numbers whose result is rounded; it must equal, bit for bit and
	// on every rank, accumulation in rank order in float32 (float64 for float64).
	Rounding Family = "rounding"
	// Special: infinities, not-a-numbers, overflow, subnormal numbers; wrapping
	// for integers.
	Special Family = "special"
)

// Families lists all families.
func Families() []Family { return []Family{Exact, Rounding, Special} }

// period is the number of elements of input before they repeat. It is a prime, so that no
// power of two, and so no chunk or slot of a transport, is a multiple of it: data that
// lands a chunk off is found.
const period = 1021

// mix returns a 64-bit hash (the finaliser of splitmix64).
func mix(v uint64) uint64 {
	v += 0x9e3779b97f4a7c15
	v = (v ^ v>>30) * 0xbf58476d1ce4e5b9
	v = (v ^ v>>27) * 0x94d049bb133111eb
	return v ^ v>>31
}

func hash(parts ...uint64) uint64 {
	h := uint64(0x5348554e54)
	for _, p := range parts {
		h = mix(h ^ p)
	}
	return h
}

// input returns one element's bits: what rank holds at index of block.
func (c *Case) input(rank, block int, index int64) uint64 {
	h := hash(c.data(), uint64(rank), uint64(block), uint64(index))
	switch {
	case !c.Collective.Reduces():
		return h & mask(c.DType) // bytes are moved as they are
	case c.Family == Special:
		return c.specialInput(h)
	case c.Family == Rounding && isFloat(c.DType):
		return c.roundingInput(h)
	}
	common := hash(c.data(), uint64(block), uint64(index))
	return c.exactInput(h, common, rank, index)
}

func mask(d plugin.DType) uint64 {
	if bits := d.Bytes() * 8; bits < 64 {
		return 1<<bits - 1
	}
	return ^uint64(0)
}

// integer returns a small whole number as the dtype holds it.
func integer(d plugin.DType, v int64) uint64 {
	if isFloat(d) {
		return floatBits(d, float64(v))
	}
	return uint64(v) & mask(d)
}

// exactInput chooses from a range in which no partial result of up to eight
// ranks is rounded, even in E5M2, which has three significant bits.
func (c *Case) exactInput(h, common uint64, rank int, index int64) uint64 {
	signed := isSigned(c.DType)
	wide := c.DType.Bytes() >= 4
	var v int64
	switch c.Op {
	case plugin.OpProd:
		// One rank holds 3, the others ±1 (1 where there is no sign).
		v = 1
		if signed && h&1 != 0 {
			v = -1
		}
		if int64(common%uint64(c.World)) == int64(rank) {
			v *= 3
		}
	case plugin.OpAvg:
		if !isFloat(c.DType) {
			if isSigned(c.DType) { // a mean of integers is rounded toward zero
				return uint64(int64(h%31)-15) & mask(c.DType)
			}
			return h % 31
		}
		// Ranks deviate from a common value in pairs, so the mean is whole.
		v = 1
		if wide {
			v = 1000 + int64(common%1000)
		}
		if rank^1 < c.World {
			d := int64(hash(common, uint64(rank>>1))%3) - 1
			if rank&1 != 0 {
				d = -d
			}
			v += d
		}
	case plugin.OpMax, plugin.OpMin:
		v = int64(h % 8)
		if wide {
			v = int64(h % 1_000_000)
		}
		if signed && h>>32&1 != 0 {
			v = -v
		}
	default: // sum, premul_sum (scalars ±1, ±2)
		v = int64(h % 2)
		if c.Op == plugin.OpSum && wide {
			v = int64(h % 100_000)
		}
		if signed && h>>32&1 != 0 {
			v = -v
		}
		if c.Op == plugin.OpPremulSum && !isFloat(c.DType) {
			v = int64(h % 5)
		}
	}
	if v == 0 {
		return 0 // never the negative zero
	}
	return integer(c.DType, v)
}

// roundingInput spreads over a few powers of two, so that almost every sum is
// rounded, and order and precision of accumulation show.
func (c *Case) roundingInput(h uint64) uint64 {
	fraction := float64(h>>12) / (1 << 52)
	v := 1 + fraction
	if c.Op == plugin.OpProd {
		v = 0.75 + fraction/2
	} else {
		v = math.Ldexp(v, int(h>>3&7)-3)
	}
	if h&1 != 0 {
		v = -v
	}
	return floatBits(c.DType, v)
}

// specialInput mixes extreme values in among ordinary ones.
func (c *Case) specialInput(h uint64) uint64 {
	if !isFloat(c.DType) {
		return h & mask(c.DType) // sums wrap, also that which a mean divides
	}
	largest, smallest, infinity := math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1)
	if c.DType == plugin.Float32 {
		largest, smallest = math.MaxFloat32, math.SmallestNonzeroFloat32
	}
	if f, small := formats[c.DType]; small {
		largest, smallest = f.largest, math.Ldexp(1, 1-f.bias-f.mantissa)
		if f.saturates {
			infinity = largest
		}
	}
	var v float64
	switch h >> 8 % 16 {
	case 0:
		v = math.NaN()
	case 1:
		v = infinity
	case 2, 3:
		v = largest
	case 4, 5:
		v = smallest * float64(1+h>>20%3)
	default:
		v = float64(1 + h>>20%7)
	}
	if h&1 != 0 {
		v = -v
	}
	return floatBits(c.DType, v)
}

// scalar returns rank's factor of premul_sum: a power of two, so that only the
// dtype decides whether the product is rounded.
func (c *Case) scalar(rank int) float64 {
	h := hash(c.Seed, uint64(rank), 0x5ca1a7)
	if c.Family != Exact && isFloat(c.DType) {
		return []float64{0.5, 0.25, 2, -0.5}[h%4]
	}
	if !isSigned(c.DType) {
		return float64(1 + h%2)
	}
	// ±2 for one rank only, so that sums of eight stay within three bits.
	s := 1.0
	if rank == int(c.Seed%uint64(c.World)) && c.World <= 4 {
		s = 2
	}
	if h&1 != 0 {
		s = -s
	}
	return s
}

// inputTable returns one period of rank's block, or what n elements need of it, as bytes.
func (c *Case) inputTable(rank, block int, n int64) []byte {
	size, n := c.DType.Bytes(), within(n)
	b := make([]byte, n*size)
	for i := range n {
		storeBits(b[i*size:], size, c.input(rank, block, i))
	}
	return b
}

// within returns how many elements of a period are looked at of a block of n, one at least.
func within(n int64) int64 { return max(min(n, period), 1) }

// reducedTable returns one period of the reduction of all ranks' block, or what n elements need of it.
func (c *Case) reducedTable(block int, n int64) []byte {
	size, n := c.DType.Bytes(), within(n)
	b := make([]byte, n*size)
	scalars := make([]float64, c.World)
	for rank := range scalars {
		scalars[rank] = c.scalar(rank)
	}
	sources := make([]uint64, c.World)
	for i := range n {
		for rank := range sources {
			sources[rank] = c.input(rank, block, i)
		}
		storeBits(b[i*size:], size, reduceReference(c.DType, c.Op, sources, scalars))
	}
	return b
}
