package bench

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/shunt-ccl/shunt/plugin"
)

// period is the length of the pattern in elements: a prime, so that it falls
// in step with no chunk, shard or packet of a transport.
const period = 4093

// pattern knows what every rank sends and what a reduction must give: small
// integers that each dtype holds exactly, so results are compared bit for bit.
type pattern struct {
	dtype  plugin.DType
	op     plugin.Op
	world  int
	sparse bool              // see value
	blocks map[source][]byte // one period of each source, encoded
}

// source names the owner of a piece of a result: a rank, or the reduction.
type source int

const reduced source = -1

// scalar is the factor of premul_sum on every rank.
const scalar = 2

func newPattern(dtype plugin.DType, op plugin.Op, world int) *pattern {
	// Up to here a dtype holds every integer.
	exact := int64(1) << 24
	switch dtype {
	case plugin.Int8:
		exact = 127
	case plugin.Uint8:
		exact = 255
	case plugin.Float16:
		exact = 2048
	case plugin.Bfloat16:
		exact = 256
	case plugin.Float8E4m3:
		exact = 16
	case plugin.Float8E5m2:
		exact = 8
	}
	return &pattern{dtype: dtype, op: op, world: world, sparse: int64(world)*3*scalar > exact, blocks: map[source][]byte{}}
}

// noise returns the i-th of a fixed sequence of pseudo-random numbers.
func noise(i int) int {
	x := uint64(i)*0x9E3779B97F4A7C15 + 0x1234567
	x = (x ^ x>>31) * 0xBF58476D1CE4E5B9
	return int((x ^ x>>29) & 0xFFFF)
}

// value returns element i (within the period) that a rank sends. Sparse patterns,
// in which one rank at a time contributes to a sum, serve where the sum of all
// would not be exact.
func (p *pattern) value(rank, i int) int64 {
	switch {
	case p.op == plugin.OpProd:
		if noise(i)%(p.world+1) == rank {
			return 2
		}
		return 1
	case p.op == plugin.OpAvg:
		// One more here and one less there, so that the mean is whole.
		v := int64(1 + noise(i)&1)
		switch {
		case p.world > 1 && rank == 0:
			v++
		case rank == 1:
			v--
		}
		return v
	case p.sparse && noise(i)%p.world != rank:
		return 0
	case p.sparse:
		return int64(noise(i+1) & 3)
	}
	return int64(noise((i+17*rank)%period) & 3)
}

// result returns element i of the reduction over all ranks.
func (p *pattern) result(i int) int64 {
	r := p.value(0, i)
	if p.op == plugin.OpPremulSum {
		r *= scalar
	}
	for rank := 1; rank < p.world; rank++ {
		v := p.value(rank, i)
		switch p.op {
		case plugin.OpSum, plugin.OpAvg:
			r += v
		case plugin.OpPremulSum:
			r += scalar * v
		case plugin.OpProd:
			r *= v
		case plugin.OpMin:
			r = min(r, v)
		case plugin.OpMax:
			r = max(r, v)
		}
	}
	if p.op == plugin.OpAvg {
		switch p.dtype { // the sum wraps around
		case plugin.Int8:
			r = int64(int8(r))
		case plugin.Uint8:
			r = int64(uint8(r))
		}
		r /= int64(p.world)
	}
	return r
}

// block returns one encoded period of a source.
func (p *pattern) block(s source) []byte {
	if b := p.blocks[s]; b != nil {
		return b
	}
	b := make([]byte, 0, period*p.dtype.Bytes())
	for i := range period {
		if s == reduced {
			b = encode(b, p.dtype, p.result(i))
		} else {
			b = encode(b, p.dtype, p.value(int(s), i))
		}
	}
	p.blocks[s] = b
	return b
}

// fill writes the source's elements from index first on into memory.
func (p *pattern) fill(memory []byte, s source, first int64) {
	p.walk(memory, s, first, func(have, want []byte) bool {
		copy(have, want)
		return true
	})
}

// wrong counts the elements of memory that are not the source's elements from
// index first on.
func (p *pattern) wrong(memory []byte, s source, first int64) int64 {
	size := int(p.dtype.Bytes())
	count := int64(0)
	p.walk(memory, s, first, func(have, want []byte) bool {
		if bytes.Equal(have, want) {
			return true
		}
		for i := 0; i < len(have); i += size {
			if !bytes.Equal(have[i:i+size], want[i:i+size]) {
				count++
			}
		}
		return true
	})
	return count
}

// walk pairs memory, piece by piece, with the source's encoded elements.
func (p *pattern) walk(memory []byte, s source, first int64, visit func(have, want []byte) bool) {
	block := p.block(s)
	at := int(first%period) * int(p.dtype.Bytes())
	for len(memory) > 0 {
		n := min(len(memory), len(block)-at)
		if !visit(memory[:n], block[at:at+n]) {
			return
		}
		memory, at = memory[n:], 0
	}
}

// encode appends a small whole number, not negative, as one element.
func encode(to []byte, dtype plugin.DType, v int64) []byte {
	le := binary.LittleEndian
	switch dtype {
	case plugin.Int8, plugin.Uint8:
		return append(to, byte(v))
	case plugin.Int32, plugin.Uint32:
		return le.AppendUint32(to, uint32(v))
	case plugin.Int64, plugin.Uint64:
		return le.AppendUint64(to, uint64(v))
	case plugin.Float32:
		return le.AppendUint32(to, math.Float32bits(float32(v)))
	case plugin.Float64:
		return le.AppendUint64(to, math.Float64bits(float64(v)))
	case plugin.Float16:
		return le.AppendUint16(to, uint16(floatBits(v, 10, 15)))
	case plugin.Bfloat16:
		return le.AppendUint16(to, uint16(floatBits(v, 7, 127)))
	case plugin.Float8E4m3:
		return append(to, byte(floatBits(v, 3, 7)))
	case plugin.Float8E5m2:
		return append(to, byte(floatBits(v, 2, 15)))
	}
	panic("bench: no encoding of " + dtype.String())
}

// floatBits returns a whole number as a binary float with the given mantissa bits and
// bias; the number must be exact in it.
func floatBits(v int64, mantissa, bias int) uint64 {
	if v == 0 {
		return 0
	}
	exponent := bits.Len64(uint64(v)) - 1
	fraction := uint64(v) - 1<<exponent
	return uint64(exponent+bias)<<mantissa | fraction<<mantissa>>exponent
}
