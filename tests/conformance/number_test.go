package conformance

import (
	"math"
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
		{plugin.Float16, 0x1p-25, 0}, {plugin.Float16, 0x1.8p-25, 1}, {plugin.Float16, 2049, 0x6800},
		{plugin.Float16, 2051, 0x6802},
		{plugin.Bfloat16, 1, 0x3f80}, {plugin.Bfloat16, 257, 0x4380}, {plugin.Bfloat16, 259, 0x4382},
		{plugin.Bfloat16, math.MaxFloat32, 0x7f80},
		{plugin.Float8E4m3, 1, 0x38}, {plugin.Float8E4m3, 448, 0x7e}, {plugin.Float8E4m3, 1e6, 0x7e},
		{plugin.Float8E4m3, -1e6, 0xfe}, {plugin.Float8E4m3, 0x1p-9, 1},
		{plugin.Float8E4m3, 17, 0x58}, {plugin.Float8E4m3, 19, 0x5a}, {plugin.Float8E4m3, math.Inf(1), 0x7e},
		{plugin.Float8E5m2, 1, 0x3c}, {plugin.Float8E5m2, 57344, 0x7b}, {plugin.Float8E5m2, 61439, 0x7b},
		{plugin.Float8E5m2, 61440, 0x7c}, {plugin.Float8E5m2, 0x1p-16, 1},
	} {
		if got := floatBits(test.d, test.v); got != test.want {
			t.Errorf("%s %g: 0x%x, want 0x%x", test.d, test.v, got, test.want)
		}
	}
}
