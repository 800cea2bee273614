package conformance

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

func TestFormatsRoundTripEveryCode(t *testing.T) {
	for d, f := range formats {
		bits := 1 + f.exponent + f.mantissa
		for code := range uint64(1) << bits {
			v := f.decode(code)
			got := f.encode(v)
			if math.IsNaN(v) {
				if got != f.nan {
					t.Errorf("%s: NaN 0x%x became 0x%x", d, code, got)
				}
				continue
			}
			if got != code {
				t.Fatalf("%s: 0x%x is %g, which encodes to 0x%x", d, code, v, got)
			}
		}
	}
}

func TestFormatsKnownValues(t *testing.T) {
	for _, test := range []struct {
		d    plugin.DType
		v    float64
		want uint64
	}{
		{plugin.Float16, 1, 0x3c00}, {plugin.Float16, -2, 0xc000}, {plugin.Float16, 65504, 0x7bff},
		{plugin.Float16, 65519, 0x7bff}, {plugin.Float16, 65520, 0x7c00}, {plugin.Float16, 0x1p-24, 1},
		{plugin.Float16, 0x1p-25, 0}, {plugin.Float16, 0x1.8p-25, 1}, {plugin.Float16, 2049, 0x6800}, {plugin.Float16, 2051, 0x6802},
		{plugin.Bfloat16, 1, 0x3f80}, {plugin.Bfloat16, 257, 0x4380}, {plugin.Bfloat16, 259, 0x4382}, {plugin.Bfloat16, math.MaxFloat32, 0x7f80},
		{plugin.Float8E4m3, 1, 0x38}, {plugin.Float8E4m3, 448, 0x7e}, {plugin.Float8E4m3, 1e6, 0x7e}, {plugin.Float8E4m3, -1e6, 0xfe}, {plugin.Float8E4m3, 0x1p-9, 1},
		{plugin.Float8E4m3, 17, 0x58}, {plugin.Float8E4m3, 19, 0x5a}, {plugin.Float8E4m3, math.Inf(1), 0x7e},
		{plugin.Float8E5m2, 1, 0x3c}, {plugin.Float8E5m2, 57344, 0x7b}, {plugin.Float8E5m2, 61439, 0x7b}, {plugin.Float8E5m2, 61440, 0x7c}, {plugin.Float8E5m2, 0x1p-16, 1},
	} {
		if got := floatBits(test.d, test.v); got != test.want {
			t.Errorf("%s %g: 0x%x, want 0x%x", test.d, test.v, got, test.want)
		}
	}
}

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

// inReals is the reduction in real numbers, far from any rounding.
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
			acc += v[r] * scalars[r]
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
					t.Errorf("%s %s %s world %d seed %d: rank %d's data may be replaced unnoticed", c.DType, c.Op, family, c.World, c.Seed, left)
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
		{"NaN wins", plugin.Float32, plugin.OpMax, []uint64{floatBits(plugin.Float32, math.NaN()), floatBits(plugin.Float32, 1)}, nil, floatBits(plugin.Float32, math.NaN())},
		{"saturates", plugin.Float8E4m3, plugin.OpSum, []uint64{0x7e, 0x7e}, nil, 0x7e},
		{"overflows", plugin.Float8E5m2, plugin.OpSum, []uint64{0x7b, 0x7b}, nil, 0x7c},
		{"product rounded first", plugin.Float8E5m2, plugin.OpPremulSum, []uint64{1, 1}, []float64{0.5, 0.5}, 0},
		{"integer scalars", plugin.Int32, plugin.OpPremulSum, []uint64{3, 5}, []float64{-2, 1}, 0xffffffff},
	} {
		if got := reduceReference(test.d, test.op, test.in, test.scalars); got != test.want {
			t.Errorf("%s: 0x%x, want 0x%x", test.name, got, test.want)
		}
	}
}

// Layouts of all ranks must fit together: what one sends, another receives.
func TestLayoutsFitTogether(t *testing.T) {
	for _, collective := range plugin.Collectives()[:plugin.Send] {
		for _, split := range []Split{Even, Ragged, Single, Sparse} {
			for _, displ := range []Displ{NoDispl, Packed, Gapped, Reversed} {
				c := Case{Collective: collective, DType: plugin.Float16, Count: 37, World: 3, Root: 1, Split: split, Displ: displ, Seed: 11, Family: Exact}
				sent, received := int64(0), int64(0)
				for rank := range c.World {
					l := c.layoutOf(rank)
					for _, b := range l.input {
						sent += b.count
						if b.at < 0 || b.at+b.count > l.send {
							t.Errorf("%s rank %d: input [%d,+%d) of %d", c.Name(), rank, b.at, b.count, l.send)
						}
					}
					for i, b := range l.output {
						received += b.count
						if b.at < 0 || b.at+b.count > l.recv {
							t.Errorf("%s rank %d: output [%d,+%d) of %d", c.Name(), rank, b.at, b.count, l.recv)
						}
						for _, o := range l.output[:i] {
							if b.count > 0 && o.count > 0 && b.at < o.at+o.count && o.at < b.at+b.count {
								t.Errorf("%s rank %d: blocks overlap", c.Name(), rank)
							}
						}
					}
				}
				exchange := collective == plugin.AllToAll || collective == plugin.AllToAllV || collective == plugin.Scatter || collective == plugin.ScatterV || collective == plugin.Gather || collective == plugin.GatherV
				if exchange && sent != received {
					t.Errorf("%s: %d elements sent, %d received", c.Name(), sent, received)
				}
			}
		}
	}
}

func TestArenaSeesEveryStrayByte(t *testing.T) {
	c := &Case{Collective: plugin.AllGatherV, DType: plugin.Int32, Count: 5, World: 3, Split: Even, Displ: Gapped, Seed: 3, Family: Exact}
	l := c.layoutOf(0)
	var a arena
	defer a.close()
	if err := a.reset(need(c.DType, l.recv, 3)); err != nil {
		t.Fatal(err)
	}
	b, err := a.buffer("recv", c.DType, l.recv, 3, 7)
	if err != nil {
		t.Fatal(err)
	}
	if uintptr(b.pointer(0))%64 != 12 || uintptr(b.pointer(1))%64 != 16 {
		t.Errorf("addresses %p and %p are not shifted by three elements", b.pointer(0), b.pointer(1))
	}
	for _, e := range l.output {
		b.put(e)
	}
	if err := b.check(c, l.output); err != nil {
		t.Fatal(err)
	}
	for i := range b.all {
		b.all[i] ^= 0x10
		if b.check(c, l.output) == nil {
			t.Fatalf("byte %d of %d was changed unnoticed", i, len(b.all))
		}
		b.all[i] ^= 0x10
	}
	if err := b.check(c, l.output); err != nil {
		t.Fatal(err)
	}
}

func TestUnwrittenElementIsNamed(t *testing.T) {
	c := &Case{Collective: plugin.Broadcast, DType: plugin.Uint8, Count: 3000, World: 2, Seed: 3}
	var a arena
	defer a.close()
	if err := a.reset(need(c.DType, c.Count, 0)); err != nil {
		t.Fatal(err)
	}
	b, err := a.buffer("recv", c.DType, c.Count, 0, 7)
	if err != nil {
		t.Fatal(err)
	}
	err = b.check(c, c.layoutOf(0).output)
	if err == nil || !strings.Contains(err.Error(), "element 0") || !strings.Contains(err.Error(), "never written") {
		t.Errorf("error %v", err)
	}
}

func TestPairwiseCoversEveryAllowedPair(t *testing.T) {
	levels := []int{12, 6, 14, 2, 3, 4, 6, 5}
	allowed := func(row []int) bool { return !(row[2] > 10 && row[7] > 2) && !(row[0] == 3 && row[1] == 2) }
	rows := pairwise(levels, 1, allowed)
	again := pairwise(levels, 1, allowed)
	if fmt.Sprint(rows) != fmt.Sprint(again) {
		t.Error("the same arguments gave other rows")
	}
	have := newPairs(levels)
	for _, row := range rows {
		if !allowed(row) {
			t.Errorf("row %v is not allowed", row)
		}
		have.add(row)
	}
	for a := range levels {
		for b := a + 1; b < len(levels); b++ {
			for x := range levels[a] {
				for y := range levels[b] {
					row := []int{unset, unset, unset, unset, unset, unset, unset, unset}
					row[a], row[b] = x, y
					if allowed(row) && !have.has(a, x, b, y) {
						t.Errorf("no row has axis %d at %d and axis %d at %d", a, x, b, y)
					}
				}
			}
		}
	}
	if len(rows) > 3*12*14 {
		t.Errorf("%d rows are many", len(rows))
	}
	t.Logf("%d rows", len(rows))
}
