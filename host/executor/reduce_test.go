package executor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/shunt-ccl/shunt/plugin"
)

// everyInstructionSet runs a test with each set that this processor has.
func everyInstructionSet(t *testing.T, test func(t *testing.T)) {
	for _, name := range []string{"baseline", "avx2", "avx512"} {
		t.Run(name, func(t *testing.T) {
			if !useInstructions(name) {
				t.Skipf("the processor lacks %s", name)
			}
			defer useInstructions("")
			test(t)
		})
	}
}

// reducer is an engine and a program that reduces sources side by side in the
// send memory into the receive memory. Factors, if any, are in the arrays.
type reducer struct {
	e       *Engine
	p       *Program
	sources int
}

func newReducer(t testing.TB, world int, dtype plugin.DType, op plugin.Op, sources int, scaled bool) *reducer {
	t.Helper()
	e, err := NewEngine(0, world)
	must(t, err)
	t.Cleanup(e.Close)
	body := func(b *plugin.Builder) {
		b.Track(func() {
			var refs []plugin.RefID
			for i := range sources {
				refs = append(refs, b.Send(b.Mul(b.Const(int64(i)), b.Slot(plugin.SlotBytes))))
			}
			b.Reduce(b.Recv(b.Const(0)), b.Slot(plugin.SlotCount), refs...)
		})
	}
	p := plan(t, 0, world, dtype, op, body)
	if scaled {
		reduce := p.Steps[len(p.Steps)-1]
		for i := range sources {
			p.Refs[int(reduce.A)+i].Scale = uint16(plugin.SlotSendCount(world, i))
		}
	}
	program, err := e.Load(p, 0)
	must(t, err)
	t.Cleanup(program.Free)
	return &reducer{e: e, p: program, sources: sources}
}

func (r *reducer) run(t testing.TB, dtype plugin.DType, send, recv []byte, n int, factors []float64) {
	t.Helper()
	a := arguments(send, recv, int64(n), int64(n)*dtype.Bytes())
	if factors != nil {
		a.Arrays = make([]int64, 4*r.e.world)
		for i, f := range factors {
			a.Arrays[i] = int64(math.Float64bits(f))
		}
	}
	must(t, r.e.Run(r.p, a, testDeadline))
}

// interesting returns bits at the edges of a dtype, then random ones.
func interesting(dtype plugin.DType, rng *rand.Rand, n int) []uint64 {
	size := dtype.Bytes()
	var out []uint64
	switch {
	case size == 1:
		for v := range uint64(256) {
			out = append(out, v)
		}
	case minifloats[dtype] != nil:
		out = append(out, 0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0x7BFF, 0x7C00, 0xFC00, 0x7E01, 0x3F80, 0x7F7F, 0x7F80,
			0x7FC1, 0x7F, 0x80)
	case dtype == plugin.Float32:
		for _, f := range []float32{0, float32(math.Copysign(0, -1)), 1, -1, 1.5, math.MaxFloat32,
			math.SmallestNonzeroFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())} {
			out = append(out, uint64(math.Float32bits(f)))
		}
	case dtype == plugin.Float64:
		for _, f := range []float64{0, math.Copysign(0, -1), 1, -1, 1.5, math.MaxFloat64, math.SmallestNonzeroFloat64,
			math.Inf(1), math.Inf(-1), math.NaN()} {
			out = append(out, math.Float64bits(f))
		}
	default:
		out = append(out, 0, 1, math.MaxUint64, 1<<(8*size-1), 1<<(8*size-1)-1)
	}
	for len(out) < n {
		v := rng.Uint64()
		if rng.IntN(2) == 0 { // near one another, so that sums round and compare
			switch dtype {
			case plugin.Float32:
				v = uint64(math.Float32bits(rng.Float32()*4 - 2))
			case plugin.Float64:
				v = math.Float64bits(rng.Float64()*4 - 2)
			}
			if f := minifloats[dtype]; f != nil {
				v = uint64(f.encode(rng.Float64()*4 - 2))
			}
		}
		out = append(out, v)
	}
	rng.Shuffle(len(out), func(i, k int) { out[i], out[k] = out[k], out[i] })
	for i := range out {
		out[i] &= math.MaxUint64 >> (64 - 8*size)
	}
	return out[:n]
}

func TestReduceMatchesReference(t *testing.T) {
	everyInstructionSet(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		for _, dtype := range plugin.DTypes() {
			for _, op := range plugin.Ops() {
				for _, sources := range []int{1, 2, 3, 4, 5, 8} {
					r := newReducer(t, 5, dtype, op, sources, false)
					for _, n := range []int{1, 7, 33, 300} {
						checkReduce(t, r, dtype, op, n, rng, nil, false)
					}
					checkReduce(t, r, dtype, op, 100, rng, nil, true)
				}
			}
		}
	})
}

func TestReduceAcrossBlocks(t *testing.T) {
	everyInstructionSet(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4))
		for _, dtype := range plugin.DTypes() {
			for _, sources := range []int{2, 4, 7} {
				r := newReducer(t, 3, dtype, plugin.OpAvg, sources, false)
				checkReduce(t, r, dtype, plugin.OpAvg, 5000, rng, nil, true)
			}
		}
	})
}

func TestScaledSourcesRoundBeforeTheSum(t *testing.T) {
	everyInstructionSet(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 6))
		for _, dtype := range plugin.DTypes() {
			for _, factors := range [][]float64{
				{2}, {0.3, -1.7}, {1, 0.1, 3, -0.25, 1e-3}, {math.Inf(1), math.NaN()}, {1e300, -1e19, 9.3e18}, {0x1p62, -3, 0.5},
			} {
				r := newReducer(t, 5, dtype, plugin.OpPremulSum, len(factors), true)
				checkReduce(t, r, dtype, plugin.OpPremulSum, 300, rng, factors, false)
				checkReduce(t, r, dtype, plugin.OpPremulSum, 3000, rng, factors, true)
			}
		}
	})
}

// checkReduce compares a reduction of interesting elements with the
// reference; inPlace writes over the last source.
func checkReduce(t *testing.T, r *reducer, dtype plugin.DType, op plugin.Op, n int, rng *rand.Rand, factors []float64,
	inPlace bool) {
	t.Helper()
	size := int(dtype.Bytes())
	// An odd start puts every element out of alignment.
	send := make([]byte, 1, 1+r.sources*n*size)
	inputs := make([][]uint64, r.sources)
	for i := range inputs {
		inputs[i] = interesting(dtype, rng, n)
		for _, bits := range inputs[i] {
			send = appendElement(send, size, bits)
		}
	}
	send = send[1:]
	recv := make([]byte, n*size)
	if inPlace {
		recv = send[(r.sources-1)*n*size:]
	}
	r.run(t, dtype, send, recv, n, factors)
	column := make([]uint64, r.sources)
	for i := range n {
		for s := range inputs {
			column[s] = inputs[s][i]
		}
		want := referenceReduce(dtype, op, r.e.world, column, factors)
		if got := element(recv, size, i); !sameElement(dtype, got, want) {
			t.Fatalf("%s %s of %d sources, factors %v, n %d, in place %v: element %d of %x: got %s, want %s",
				dtype, op, r.sources, factors, n, inPlace, i, column, show(dtype, got), show(dtype, want))
		}
	}
}

// TestNarrowFormatsConvertExactly multiplies 1 by every value between any two
// neighbours of a format: at, just below and just above each middle.
func TestNarrowFormatsConvertExactly(t *testing.T) {
	everyInstructionSet(t, func(t *testing.T) {
		for dtype, f := range minifloats {
			var values []float32
			for i, v := range f.values {
				values = append(values, float32(v))
				if i+1 < len(f.values) {
					middle := float32(v + (f.values[i+1]-v)/2)
					values = append(values, middle, math.Nextafter32(middle, 0), math.Nextafter32(middle, math.MaxFloat32))
				}
			}
			largest := f.values[len(f.values)-1]
			half := (largest - f.values[len(f.values)-2]) / 2
			beyond := float32(largest + half)
			values = append(values, beyond, math.Nextafter32(beyond, 0), math.Nextafter32(beyond, float32(math.Inf(1))),
				math.MaxFloat32, float32(math.Inf(1)), float32(math.NaN()))

			e, err := NewEngine(0, 1)
			must(t, err)
			// The scaled copy rounds the product once: 1 * factor.
			p := plan(t, 0, 1, dtype, plugin.OpPremulSum, func(b *plugin.Builder) {
				b.Track(func() { b.Copy(b.Recv(b.Const(0)), b.SendScaled(b.Const(0)), b.Slot(plugin.SlotBytes)) })
			})
			program, err := e.Load(p, 0)
			must(t, err)
			size := int(dtype.Bytes())
			// Enough elements for the vector loop and its remainder.
			const n = 65
			var one []byte
			for range n {
				one = appendElement(one, size, uint64(f.encode(1)))
			}
			out := make([]byte, n*size)
			a := arguments(one, out, n, int64(n*size))
			for _, v := range values {
				for _, v := range []float32{v, -v} {
					a.Slots[plugin.SlotScalar] = int64(math.Float64bits(float64(v)))
					must(t, e.Run(program, a, testDeadline))
					want := uint64(f.encode(float64(v)))
					for _, i := range []int{0, n - 1} {
						if got := element(out, size, i); !sameElement(dtype, got, want) {
							t.Fatalf("%s of %v (%#x): got %s, want %s", dtype, v, math.Float32bits(v), show(dtype, got), show(dtype, want))
						}
					}
				}
			}
			program.Free()
			e.Close()
		}
	})
}

// TestEveryCodeSurvives widens and narrows every code of every narrow format:
// the minimum of two equal elements is that element, NaNs stay NaNs.
func TestEveryCodeSurvives(t *testing.T) {
	everyInstructionSet(t, func(t *testing.T) {
		for dtype, f := range minifloats {
			size := int(dtype.Bytes())
			n := 1 << f.bits()
			var codes []byte
			for range 2 {
				for code := range n {
					codes = appendElement(codes, size, uint64(code))
				}
			}
			out := make([]byte, n*size)
			newReducer(t, 1, dtype, plugin.OpMin, 2, false).run(t, dtype, codes, out, n, nil)
			for code := range uint64(n) {
				if got := element(out, size, int(code)); !sameElement(dtype, got, code) {
					t.Fatalf("%s %s came back as %s", dtype, show(dtype, code), show(dtype, got))
				}
			}
		}
	})
}

func BenchmarkReduce(b *testing.B) {
	for _, dtype := range []plugin.DType{plugin.Float32, plugin.Bfloat16, plugin.Float16, plugin.Float8E4m3, plugin.Int32,
		plugin.Int8, plugin.Float64} {
		for _, sources := range []int{2, 4, 8} {
			for _, bytes := range []int{64 << 10, 16 << 20} {
				b.Run(fmt.Sprintf("%s/sources=%d/bytes=%d", dtype, sources, bytes), func(b *testing.B) {
					r := newReducer(b, 1, dtype, plugin.OpSum, sources, false)
					send, recv := make([]byte, sources*bytes), make([]byte, bytes)
					for i := range send {
						send[i] = byte(i*7) & 0x3F
					}
					a := arguments(send, recv, int64(bytes)/dtype.Bytes(), int64(bytes))
					b.SetBytes(int64((sources + 1) * bytes)) // read and written
					for b.Loop() {
						must(b, r.e.Run(r.p, a, 0))
					}
				})
			}
		}
	}
}
