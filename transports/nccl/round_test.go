package nccl

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/shunt-ccl/shunt/plugin"
	"github.com/shunt-ccl/shunt/transports/cudaipc/cudaipctest"
)

// Every value of a small format is its own rounding, and what lies between two goes to the nearer, or to the even one.
func TestRoundingOfFactors(t *testing.T) {
	for d, bits := range map[plugin.DType]int{plugin.Float16: 16, plugin.Bfloat16: 16, plugin.Float8E4m3: 8,
		plugin.Float8E5m2: 8} {
		t.Run(d.String(), func(t *testing.T) {
			for b := range uint64(1) << bits {
				v := cudaipctest.Decode(d, b)
				got := rounded(v, d)
				if math.IsNaN(v) {
					assert.True(t, math.IsNaN(cudaipctest.Decode(d, got)), "%#x became %#x", b, got)
					continue
				}
				if got != b {
					t.Fatalf("%v (%#x) became %#x", v, b, got)
				}
				up := cudaipctest.Decode(d, b+1)
				if b&(1<<(bits-1)-1) == 1<<(bits-1)-1 || math.IsNaN(up) || math.IsInf(up, 0) || math.IsInf(v, 0) {
					continue
				}
				for _, part := range []float64{0.25, 0.5, 0.75} {
					want := b
					if part > 0.5 || (part == 0.5 && b&1 == 1) {
						want++
					}
					if got := rounded(v+(up-v)*part, d); got != want {
						t.Fatalf("%v between %v and %v became %#x, want %#x", part, v, up, got, want)
					}
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		v := math.Float64frombits(random.Uint64())
		if math.IsNaN(v) {
			continue
		}
		assert.Equal(t, math.Float64bits(v), rounded(v, plugin.Float64))
		assert.Equal(t, uint64(math.Float32bits(float32(v))), rounded(v, plugin.Float32))
	}
	assert.Equal(t, uint64(0xFFFFFFFFFFFFFFFD), rounded(-3.9, plugin.Int32)) // toward zero; the low bytes are the element
	assert.Equal(t, uint64(1)<<63, rounded(0x1p63, plugin.Uint64))
}
