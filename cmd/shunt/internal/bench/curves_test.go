package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

// estimates holds the candidates of a choice, with the costs that decide without a file, and which may be measured.
type estimates struct {
	request    plugin.Request
	candidates []selector.Candidate
	only       []selector.Candidate // with symmetric memory, besides
	random     *rand.Rand
}

// symmetric returns the estimates for symmetric memory.
func (e *estimates) symmetric() *estimates {
	s := *e
	s.request.Symmetric, s.candidates = true, slices.Concat(e.candidates, e.only)
	return &s
}

func newEstimates(random *rand.Rand) *estimates {
	e := &estimates{request: plugin.Request{Collective: plugin.AllReduce, DType: plugin.Float32, World: 2, Hosts: 1},
		random: random}
	for _, name := range []string{"a", "b", "c", "d"} {
		a := plugin.Algorithm{Name: name, Latency: 0.1 + 20*random.Float64(), Bandwidth: 10 * math.Exp(7*random.Float64())}
		if name != "a" && random.IntN(3) == 0 {
			a.MinBytes = 1 << random.IntN(16)
		}
		if name != "a" && random.IntN(3) == 0 {
			a.MaxBytes = 1 << (16 + random.IntN(12))
		}
		e.candidates = append(e.candidates, selector.Candidate{Transport: "t", Algorithm: a, Qualified: "t/" + name})
	}
	return e
}

func (e *estimates) choice(t *testing.T, entries []selector.Entry) *selector.Choice {
	t.Helper()
	tuning := &selector.Tuning{Version: selector.TuningVersion, Entries: entries}
	text, err := tuning.Marshal()
	require.NoError(t, err)
	if len(entries) > 0 {
		_, err = selector.ParseTuning(text)
		require.NoError(t, err)
	}
	c, err := selector.New(selector.WithCosts(selector.Costs{Tuning: tuning})).Compile(e.request, e.candidates, nil)
	require.NoError(t, err)
	return c
}

// measure returns rows with random times. Those of one algorithm are clearly shorter at a share of the sizes, and one
// may have been given up.
func (e *estimates) measure(t *testing.T, collective string, sizes []int64, clearly float64) (rows []Tuned) {
	t.Helper()
	c := e.choice(t, nil)
	spans := ranges(c, math.MaxInt64)
	gone, since := "t/"+string(rune('a'+e.random.IntN(4))), 1+e.random.IntN(2*len(sizes))
	for i, size := range sizes {
		x := c.Explain(size)
		a := Choice{Collective: collective, Bytes: size, Message: size, Plain: offered(x, spans)}
		if len(e.only) > 0 {
			open := e.symmetric().choice(t, nil)
			o := offered(open.Explain(size), ranges(open, math.MaxInt64))
			a.Symmetric = &o
		}
		row, fast := Row{Collective: collective, Bytes: size}, ""
		if e.random.Float64() < clearly {
			fast = a.Plain.Usable[e.random.IntN(len(a.Plain.Usable))]
		}
		for _, name := range append(a.only(), a.Plain.Usable...) {
			chosen := name == x.Chosen || (a.Symmetric != nil && name == a.Symmetric.Chosen)
			if name == gone && i >= since && !chosen && name != fast {
				continue
			}
			us := 10 + 100*e.random.Float64()
			timing := Timing{Microseconds: us, P25: us / 20, P75: us * 20, batches: fewBatches}
			if name == fast {
				timing = Timing{Microseconds: 0.2, P25: 0.2, P75: 0.2, batches: fewBatches}
			}
			row.Peers = append(row.Peers, Peer{name, timing})
		}
		rows = append(rows, NewTuned([]Row{row}, []Choice{a})...)
	}
	return rows
}

func offered(e selector.Explanation, spans []Span) Offer {
	o := Offer{Chosen: e.Chosen, Usable: []string{e.Chosen}, Spans: spans}
	for _, f := range e.Fallback {
		o.Usable = append(o.Usable, f.Name)
	}
	return o
}

// ranges returns the choice up to a size.
func ranges(c *selector.Choice, end int64) (list []Span) {
	for _, r := range c.Ranges() {
		if r.From < end {
			list = append(list, Span{min(r.To, end), r.Chosen})
		}
	}
	return list
}

// Where no measured size shows that another one is clearly faster the choice stays as it is, at every size.
func TestNoiseMovesNoRange(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 8))
	changes := 0
	for range 2000 {
		e := newEstimates(random)
		sizes := []int64{8 << random.IntN(4)}
		for range random.IntN(9) {
			sizes = append(sizes, sizes[len(sizes)-1]<<(1+random.IntN(4)))
		}
		rows := e.measure(t, "all_reduce", sizes, 0)
		c := Config{World: 2, DType: plugin.Float32, Tune: true, Collectives: []string{"all_reduce"}}
		entries := Entries(&c, rows, Only{})
		before := ranges(e.choice(t, nil), far)
		if len(entries) < len(e.candidates) {
			continue // one of them takes none of the sizes, and keeps its estimate
		}
		changes += len(before) - 1
		require.Equal(t, before, ranges(e.choice(t, entries), far), "measured %v\n%v", sizes, entries)
	}
	require.Greater(t, changes, 1000, "or nothing here is tested")
}

// Likewise on symmetric memory, which opens further algorithms. What is clearly faster at a measured size runs there,
// on memory of either kind.
func TestNoiseMovesNoRangeOfSymmetricMemory(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 7))
	opened := 0
	for round := range 2000 {
		e := newEstimates(random)
		e.only, e.candidates = e.candidates[2:], e.candidates[:2]
		for i := range e.only {
			e.only[i].Algorithm.Bandwidth *= 4
		}
		clearly := 0.3 * float64(round%2)
		rows := e.measure(t, "all_reduce", []int64{8, 64, 1 << 10, 1 << 12, 1 << 16, 1 << 20}, clearly)
		c := Config{World: 2, DType: plugin.Float32, Tune: true, Collectives: []string{"all_reduce"}}
		entries := Entries(&c, rows, Only{})
		if len(entries) < 4 {
			continue
		}
		for _, memory := range []*estimates{e, e.symmetric()} {
			tuned := memory.choice(t, entries)
			if clearly == 0 {
				untuned := memory.choice(t, nil)
				require.Equal(t, ranges(untuned, 1<<29), ranges(tuned, 1<<29), "%v", entries)
			}
			for i := range rows {
				want := &rows[i].Plain
				if memory != e && slices.Contains(rows[i].choice.only(), rows[i].Symmetric.Best) {
					want = rows[i].Symmetric
					opened++
				}
				require.Equal(t, want.Best, tuned.Explain(rows[i].Message).Chosen, "%d bytes", rows[i].Message)
			}
		}
	}
	require.Greater(t, opened, 1000, "or nothing here is tested")
}

// What is clearly faster at a measured size runs there, and what runs between two sizes is best at one of them or runs
// there without a file. What is best at the last size runs beyond.
func TestMeasuredSizesDecide(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		e := newEstimates(random)
		for i := range e.candidates {
			e.candidates[i].Algorithm.MinBytes, e.candidates[i].Algorithm.MaxBytes = 0, 0
		}
		rows := e.measure(t, "all_reduce", []int64{8, 64, 1 << 10, 1 << 12, 1 << 16, 1 << 20}, 0.3)
		c := Config{World: 2, DType: plugin.Float32, Tune: true, Collectives: []string{"all_reduce"}}
		untuned, tuned := e.choice(t, nil), e.choice(t, Entries(&c, rows, Only{}))
		for i, row := range rows {
			require.Equal(t, row.Plain.Best, tuned.Explain(row.Message).Chosen)
			next, end := row.Plain, row.Message*256
			if i+1 < len(rows) {
				next, end = rows[i+1].Plain, rows[i+1].Message
			}
			for range 20 {
				bytes := row.Message + random.Int64N(end-row.Message)
				chosen := tuned.Explain(bytes).Chosen
				if row.Plain.Best == row.Plain.Untuned && next.Best == next.Untuned {
					require.Equal(t, untuned.Explain(bytes).Chosen, chosen, "%d bytes", bytes)
				} else {
					require.Contains(t, []string{row.Plain.Best, next.Best}, chosen, "%d bytes", bytes)
				}
			}
		}
	}
}

// Where one algorithm serves all sizes, noise changes it as little.
func TestNoiseChangesNoneForAll(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := Config{World: 2, DType: plugin.Float32, Tune: true, Collectives: []string{"all_to_all_v"}}
	for range 500 {
		e := newEstimates(random)
		e.request.Collective = plugin.AllToAllV
		for i := range e.candidates {
			e.candidates[i].Algorithm.MinBytes, e.candidates[i].Algorithm.MaxBytes = 0, 0
		}
		rows := e.measure(t, "all_to_all_v", []int64{8, 1 << 10, 64 << 10, 1 << 20}, 0)
		entries := Entries(&c, rows, Only{})
		require.Len(t, entries, 4)
		require.Equal(t, ranges(e.choice(t, nil), far), ranges(e.choice(t, entries), far))
		require.Empty(t, Misses(rows))
	}
}

// Of one size the verdict counts, as in the table: a difference that is small but clear.
func TestOneSizeForAll(t *testing.T) {
	timing := func(us float64) Timing {
		return Timing{Microseconds: us, P25: us - 0.1, P75: us + 0.1, batches: fewBatches}
	}
	rows := NewTuned(
		[]Row{{Collective: "all_to_all_v", Bytes: 64, Peers: []Peer{{"t/a", timing(10)}, {"t/b", timing(9.7)}}}},
		[]Choice{{Collective: "all_to_all_v", Bytes: 64, Message: 64,
			Plain: Offer{Chosen: "t/a", Usable: []string{"t/a", "t/b"}}}})
	require.Equal(t, "t/b", rows[0].Plain.Best)
	c := Config{World: 2, DType: plugin.Float32, Tune: true, Collectives: []string{"all_to_all_v"}}
	entries := Entries(&c, rows, Only{})
	require.Len(t, entries, 2)
	require.Less(t, entries[1].Points[0].Microseconds, entries[0].Points[0].Microseconds)
}
