package bench

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// decode reads one element, for the tests of encode.
func decode(t *testing.T, dtype plugin.DType, b []byte) float64 {
	t.Helper()
	small := func(bits uint64, mantissa, exponent, bias int) float64 {
		e := int(bits>>mantissa) & (1<<exponent - 1)
		if bits == 0 {
			return 0
		}
		require.NotZero(t, e, "a subnormal number")
		return math.Ldexp(1+float64(bits&(1<<mantissa-1))/float64(int(1)<<mantissa), e-bias)
	}
	le := binary.LittleEndian
	switch dtype {
	case plugin.Int8:
		return float64(int8(b[0]))
	case plugin.Uint8:
		return float64(b[0])
	case plugin.Int32, plugin.Uint32:
		return float64(int32(le.Uint32(b)))
	case plugin.Int64, plugin.Uint64:
		return float64(int64(le.Uint64(b)))
	case plugin.Float16:
		return small(uint64(le.Uint16(b)), 10, 5, 15)
	case plugin.Bfloat16:
		return float64(math.Float32frombits(uint32(le.Uint16(b)) << 16))
	case plugin.Float32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case plugin.Float64:
		return math.Float64frombits(le.Uint64(b))
	case plugin.Float8E4m3:
		return small(uint64(b[0]), 3, 4, 7)
	case plugin.Float8E5m2:
		return small(uint64(b[0]), 2, 5, 15)
	}
	t.Fatalf("no decoding of %s", dtype)
	return 0
}

// The sum behind an average of integers wraps around in large worlds.
func TestPatternOfWrappedAverages(t *testing.T) {
	for dtype, wraps := range map[plugin.DType]func(int64) int64{
		plugin.Int8:  func(sum int64) int64 { return int64(int8(sum)) },
		plugin.Uint8: func(sum int64) int64 { return int64(uint8(sum)) },
		plugin.Int32: func(sum int64) int64 { return sum }} {
		for _, world := range []int{64, 128, 256} {
			p := newPattern(dtype, plugin.OpAvg, world)
			for i := range 100 {
				sum := int64(0)
				for rank := range world {
					sum += p.value(rank, i)
				}
				require.Equal(t, wraps(sum)/int64(world), p.result(i), "%s of %d, element %d", dtype, world, i)
			}
		}
	}
}

// Every value and result of every dtype and op is exact, so that bits can be
// compared, and the results differ from any one rank's data.
func TestPatternIsExact(t *testing.T) {
	for _, dtype := range plugin.DTypes() {
		for _, op := range plugin.Ops() {
			for _, world := range []int{1, 2, 3, 4, 8, 40} {
				p := newPattern(dtype, op, world)
				size := int(dtype.Bytes())
				check := func(s source, want func(int) int64) {
					block := p.block(s)
					require.Len(t, block, period*size)
					for i := range period {
						if got := decode(t, dtype, block[i*size:][:size]); got != float64(want(i)) {
							t.Fatalf("%s %s world %d source %d element %d: %v, want %d", dtype, op, world, s, i, got, want(i))
						}
					}
				}
				check(reduced, p.result)
				check(0, func(i int) int64 { return p.value(0, i) })
				if world > 1 && op != plugin.OpMin {
					require.NotEqual(t, p.block(0), p.block(reduced), "%s %s world %d", dtype, op, world)
				}
				if world > 1 {
					require.NotEqual(t, p.block(0), p.block(1), "%s %s world %d", dtype, op, world)
				}
			}
		}
	}
}

func TestWrongCounts(t *testing.T) {
	p := newPattern(plugin.Float32, plugin.OpSum, 4)
	memory := make([]byte, 4*(2*period+5))
	p.fill(memory, 2, 77)
	require.Zero(t, p.wrong(memory, 2, 77))
	require.Positive(t, p.wrong(memory, 2, 78), "another place of the same data")
	require.Positive(t, p.wrong(memory, 1, 77), "another rank's data")
	memory[0] ^= 1
	memory[4*period] ^= 1
	memory[4*period+1] ^= 1
	memory[len(memory)-1] ^= 1
	require.Equal(t, int64(3), p.wrong(memory, 2, 77))
}

// Shapes of all ranks fit together: what a piece expects of a source exists in
// that source's send buffer, pieces fill the receive buffer without overlap,
// and pairs of ranks agree on their counts.
func TestShapesFit(t *testing.T) {
	for _, test := range tests {
		for _, world := range []int{1, 2, 3, 5} {
			for _, root := range []int{0, world - 1} {
				for _, n := range []int64{1, 2, 17, 1000} {
					shapes := make([]shape, world)
					for r := range shapes {
						shapes[r] = test.shape(place{world, r, root}, n)
					}
					for r, s := range shapes {
						require.Equal(t, shapes[0].elements, s.elements, test.name)
						covered := int64(0)
						for _, e := range s.expect {
							require.Equal(t, covered, e.offset, test.name)
							covered += e.length
							if e.from == reduced {
								require.LessOrEqual(t, e.first+e.length, s.send, test.name)
							} else {
								require.LessOrEqual(t, e.first+e.length, shapes[e.from].send, test.name)
							}
						}
						if len(s.expect) > 0 {
							require.Equal(t, s.recv, covered, test.name)
						}
						if s.inPlace {
							require.True(t, s.placeSend == 0 || s.placeRecv == 0, test.name)
						}
						for _, op := range s.operations {
							for peer, c := range op.SendCounts {
								if op.Collective == plugin.AllToAllV {
									require.Equal(t, c, shapes[peer].operations[0].RecvCounts[r], "%s from %d to %d", test.name, r, peer)
								}
							}
						}
					}
				}
			}
		}
	}
}

func TestConfig(t *testing.T) {
	good := Config{World: 4, Min: 8, Max: 64, Factor: 4, DType: plugin.Float32, Budget: 1}
	require.NoError(t, good.check())
	require.Equal(t, []int64{8, 32, 64}, good.sizes())
	large := good
	for _, large.Factor = range []int64{math.MaxInt64, 1 << 61, 1 << 33, 1<<33 - 1} {
		large.Min, large.Max = 1, 1<<33
		require.LessOrEqual(t, large.Sizes(), 3, "factor %d", large.Factor)
		large.Min, large.Max = 8, 64
		require.Equal(t, []int64{8, 64}, large.sizes(), "factor %d", large.Factor)
	}
	large.Min, large.Max, large.Factor = 1, 1<<33, 1<<32 // its square is 0
	require.Equal(t, []int64{1, 1 << 32, 1 << 33}, large.sizes())
	for name, spoil := range map[string]func(*Config){
		"world of 0":                   func(c *Config) { c.World = 0 },
		"sizes from 0":                 func(c *Config) { c.Min = 0 },
		"sizes from 8 to 4":            func(c *Config) { c.Max = 4 },
		"factor 1":                     func(c *Config) { c.Factor = 1 },
		"root 4 is not a rank":         func(c *Config) { c.Root = 4 },
		"negative number":              func(c *Config) { c.Iterations = -1 },
		"dtype 99":                     func(c *Config) { c.DType = 99 },
		`no measurement is called "x"`: func(c *Config) { c.Collectives = []string{"x"} },
	} {
		c := good
		spoil(&c)
		err := c.check()
		require.ErrorIs(t, err, plugin.InvalidArgument)
		require.ErrorContains(t, err, name)
	}
}

func TestJobs(t *testing.T) {
	c := Config{World: 4, Min: 8, Max: 32, Factor: 2, DType: plugin.Float32, InPlace: true,
		Collectives: []string{"all_gather", "sendrecv", "barrier"}}
	var list []string
	for _, j := range c.jobs() {
		name := j.test.name
		if j.inPlace {
			name += " in place"
		}
		list = append(list, name)
	}
	require.Equal(t, []string{
		"all_gather", "all_gather in place", "all_gather", "all_gather in place", // 8 and 16 bytes are one element each
		"sendrecv", "sendrecv", "sendrecv", "barrier",
	}, list)
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	table := Table{To: &out, Config: Config{World: 4, Min: 8, Max: 8, Factor: 2}}
	row := Row{Collective: "all_reduce", Bytes: 1 << 20, Count: 1 << 18, DType: "float32", Op: "sum", Root: -1,
		Algorithm:  "shm/two_shot",
		OutOfPlace: &Timing{Microseconds: 123.456, Algbw: 8.5, Busbw: 12.75}}
	table.Row(row)
	row.InPlace = &Timing{Microseconds: 1, Wrong: 7}
	table.Row(row)
	table.End()
	lines := strings.Split(out.String(), "\n")
	require.Contains(t, out.String(), "# all_reduce\n      1048576        262144   float32        sum     -1     123.5     8.50    12.75        0         -        -        -        -  shm/two_shot\n")
	require.Equal(t, 1, strings.Count(out.String(), "# all_reduce\n"))
	require.Equal(t, int64(7), table.Wrong())
	require.Equal(t, "# #wrong over all rows : 7 FAILED", lines[len(lines)-3])
	// Every column ends where its heading ends.
	for _, word := range []string{"size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"} {
		head := lines[4]
		require.Contains(t, head, word)
	}
	require.Len(t, strings.Split(lines[7], "  shm")[0], len(strings.Split(lines[4], "  algorithm")[0]))
}
