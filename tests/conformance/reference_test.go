package conformance

import (
	"math"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

// allReductions runs f for every reduction the suite knows.
func allReductions(f func(c Case)) {
	for _, d := range plugin.DTypes() {
		for _, op := range plugin.Ops() {
			for _, world := range []int{1, 2, 3, 4, 5, 8} {
				for seed := range uint64(3) {
					f(Case{Collective: plugin.AllReduce, DType: d, Op: op, World: world, Seed: seed, Count: 100})
				}
			}
		}
	}
}

// The exact family must give the same bits in whatever order, and at whatever
// precision, it is accumulated: then a wrong bit is a wrong transport.
func TestExactFamilyIsExact(t *testing.T) {
	allReductions(func(c Case) {
		c.Family = Exact
		scalars := make([]float64, c.World)
		for r := range scalars {
			scalars[r] = c.scalar(r)
		}
		for i := range int64(200) {
			sources, backward := make([]uint64, c.World), make([]uint64, c.World)
			reversed := make([]float64, c.World)
			var exact []float64
			for r := range sources {
				sources[r] = c.input(r, 0, i)
				backward[c.World-1-r], reversed[c.World-1-r] = sources[r], scalars[r]
				exact = append(exact, numeric(c.DType, sources[r]))
			}
			got := reduceReference(c.DType, c.Op, sources, scalars)
			if other := reduceReference(c.DType, c.Op, backward, reversed); other != got {
				t.Fatalf("%+v element %d: forward 0x%x, backward 0x%x", c, i, got, other)
			}
			if c.Op == plugin.OpAvg && !isFloat(c.DType) {
				continue // truncates
			}
			if want := inReals(c.Op, exact, scalars); numeric(c.DType, got) != want {
				t.Fatalf("%+v element %d: %g, want %g of %v × %v", c, i, numeric(c.DType, got), want, exact, scalars)
			}
		}
	})
}

func numeric(d plugin.DType, bits uint64) float64 {
	if isFloat(d) {
		return floatValue(d, bits)
	}
	return float64(wrap(d, int64(bits)))
}

// inReals returns the reduction in real numbers, far from any rounding.
func inReals(op plugin.Op, v, scalars []float64) float64 {
	acc := v[0]
	if op == plugin.OpPremulSum {
		acc *= scalars[0]
	}
	for r := 1; r < len(v); r++ {
		switch op {
		case plugin.OpSum, plugin.OpAvg:
			acc += v[r]
		case plugin.OpPremulSum:
			acc += float64(v[r] * scalars[r])
		case plugin.OpProd:
			acc *= v[r]
		case plugin.OpMax:
			acc = max(acc, v[r])
		case plugin.OpMin:
			acc = min(acc, v[r])
		}
	}
	if op == plugin.OpAvg {
		acc /= float64(len(v))
	}
	return acc
}

// A rank that is left out, or counted twice, must show in the result.
func TestEveryRankCounts(t *testing.T) {
	allReductions(func(c Case) {
		if c.World == 1 {
			return
		}
		for _, family := range Families() {
			c.Family = family
			for left := range c.World {
				if c.Op == plugin.OpMax || c.Op == plugin.OpMin {
					if family == Exact && c.DType.Bytes() < 4 && c.World > 5 {
						continue // eight small values: another rank often has the same extreme
					}
				}
				seen := false
				for i := int64(0); i < period && !seen; i++ {
					full, without := make([]uint64, c.World), make([]uint64, c.World)
					scalars := make([]float64, c.World)
					for r := range full {
						full[r], without[r], scalars[r] = c.input(r, 0, i), c.input(r, 0, i), c.scalar(r)
					}
					other := (left + 1) % c.World
					without[left] = without[other]
					seen = reduceReference(c.DType, c.Op, full, scalars) != reduceReference(c.DType, c.Op, without, scalars)
				}
				if !seen {
					t.Errorf("%s %s %s world %d seed %d: rank %d's data may be replaced unnoticed", c.DType, c.Op, family, c.World,
						c.Seed, left)
				}
			}
		}
	})
}

// The rounding family must tell fp32 accumulation in rank order from the
// reverse order and from accumulation in the dtype itself.
func TestRoundingFamilyTellsOrderAndPrecision(t *testing.T) {
	for _, d := range plugin.DTypes() {
		if !isFloat(d) {
			continue
		}
		c := Case{Collective: plugin.AllReduce, DType: d, Op: plugin.OpSum, Family: Rounding, World: 4, Seed: 1}
		order, precision := 0, 0
		for i := range int64(period) {
			forward, backward := make([]uint64, 4), make([]uint64, 4)
			for r := range forward {
				forward[r] = c.input(r, 0, i)
				backward[3-r] = forward[r]
			}
			want := reduceReference(d, plugin.OpSum, forward, nil)
			if reduceReference(d, plugin.OpSum, backward, nil) != want {
				order++
			}
			acc := forward[0]
			for _, v := range forward[1:] {
				acc = reduceReference(d, plugin.OpSum, []uint64{acc, v}, nil)
			}
			if acc != want {
				precision++
			}
		}
		wide := d == plugin.Float32 || d == plugin.Float64
		if wide && order < period/10 {
			t.Errorf("%s: order shows in %d of %d elements", d, order, period)
		}
		if !wide && precision < period/20 {
			t.Errorf("%s: precision shows in %d of %d elements", d, precision, period)
		}
	}
}

func TestReferenceKnownResults(t *testing.T) {
	half := func(v float64) uint64 { return floatBits(plugin.Float16, v) }
	for _, test := range []struct {
		name    string
		d       plugin.DType
		op      plugin.Op
		in      []uint64
		scalars []float64
		want    uint64
	}{
		{"wraps", plugin.Int8, plugin.OpSum, []uint64{100, 100}, nil, 0xc8},
		{"wraps 64", plugin.Uint64, plugin.OpProd, []uint64{1 << 63, 2}, nil, 0},
		{"avg truncates", plugin.Int32, plugin.OpAvg, []uint64{0xfffffffd, 0}, nil, 0xffffffff},
		{"avg unsigned", plugin.Uint64, plugin.OpAvg, []uint64{1 << 63, 2}, nil, 1<<62 + 1},
		{"unsigned max", plugin.Uint8, plugin.OpMax, []uint64{0x80, 0x7f}, nil, 0x80},
		{"signed max", plugin.Int8, plugin.OpMax, []uint64{0x80, 0x7f}, nil, 0x7f},
		{"unsigned 64 min", plugin.Uint64, plugin.OpMin, []uint64{1 << 63, 5}, nil, 5},
		{"one rounding", plugin.Float16, plugin.OpSum, []uint64{half(2048), half(1), half(1)}, nil, half(2050)},
		{"NaN wins", plugin.Float32, plugin.OpMax, []uint64{floatBits(plugin.Float32, math.NaN()),
			floatBits(plugin.Float32, 1)}, nil, floatBits(plugin.Float32, math.NaN())},
		{"NaN wins over infinity", plugin.Float64, plugin.OpMin,
			[]uint64{math.Float64bits(math.Inf(-1)), math.Float64bits(math.NaN())}, nil, math.Float64bits(math.NaN())},
		{"saturates", plugin.Float8E4m3, plugin.OpSum, []uint64{0x7e, 0x7e}, nil, 0x7e},
		{"overflows", plugin.Float8E5m2, plugin.OpSum, []uint64{0x7b, 0x7b}, nil, 0x7c},
		{"infinity stays", plugin.Float8E5m2, plugin.OpMax, []uint64{0x7c, 0x3c}, nil, 0x7c},
		{"avg is rounded once", plugin.Float32, plugin.OpAvg,
			[]uint64{floatBits(plugin.Float32, 5), floatBits(plugin.Float32, 5), floatBits(plugin.Float32, 5)}, nil,
			floatBits(plugin.Float32, 5)},
		{"avg of halves accumulates in float32", plugin.Float16, plugin.OpAvg, []uint64{half(65504), half(65504)}, nil,
			half(65504)},
		{"avg overflows as its sum does", plugin.Float32, plugin.OpAvg,
			[]uint64{floatBits(plugin.Float32, math.MaxFloat32), floatBits(plugin.Float32, math.MaxFloat32)}, nil,
			floatBits(plugin.Float32, math.Inf(1))},
		{"product rounded first", plugin.Float8E5m2, plugin.OpPremulSum, []uint64{1, 1}, []float64{0.5, 0.5}, 0},
		{"integer scalars", plugin.Int32, plugin.OpPremulSum, []uint64{3, 5}, []float64{-2, 1}, 0xffffffff},
	} {
		got := reduceReference(test.d, test.op, test.in, test.scalars)
		if isFloat(test.d) && math.IsNaN(floatValue(test.d, got)) && math.IsNaN(floatValue(test.d, test.want)) {
			continue // any not-a-number is one
		}
		if got != test.want {
			t.Errorf("%s: 0x%x, want 0x%x", test.name, got, test.want)
		}
	}
}
