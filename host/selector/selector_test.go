package selector

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

func candidate(qualified string, latency, bandwidth float64, minBytes, maxBytes int64) Candidate {
	transport, name, _ := strings.Cut(qualified, "/")
	return Candidate{Transport: transport, Qualified: qualified,
		Algorithm: plugin.Algorithm{Name: name, Latency: latency, Bandwidth: bandwidth, MinBytes: minBytes,
			MaxBytes: maxBytes}}
}

var (
	request = plugin.Request{Collective: plugin.AllReduce, DType: plugin.Float32, Op: plugin.OpSum, World: 4, Hosts: 1}
	three   = []Candidate{
		candidate("shm/one_shot", 1, 1000, 0, 64<<10),
		candidate("shm/two_shot", 5, 8000, 0, 0),
		candidate("nccl/ring", 20, 100000, 0, 0),
	}
)

func compile(t *testing.T, spec string, candidates []Candidate) *Choice {
	t.Helper()
	o, err := Parse(spec)
	require.NoError(t, err)
	c, err := New(WithOverride(o)).Compile(request, candidates, map[string]string{"rdma": "no device"})
	require.NoError(t, err)
	return c
}

func name(c *Choice, bytes int64) string {
	if i := c.Pick(bytes); i >= 0 {
		return c.Candidates()[i].Qualified
	}
	return ""
}

func TestCheapestBySize(t *testing.T) {
	c := compile(t, "", three)
	require.Equal(t, "shm/one_shot", name(c, 0))
	require.Equal(t, "shm/one_shot", name(c, 4571), "1+x/1000 < 5+x/8000 below 4571.4")
	require.Equal(t, "shm/two_shot", name(c, 4572))
	require.Equal(t, "shm/two_shot", name(c, 130434))
	require.Equal(t, "nccl/ring", name(c, 130436))
	require.Equal(t, "nccl/ring", name(c, math.MaxInt64))
	require.Len(t, c.Ranges(), 3)
}

// Ranges follow each other from nothing to any size, and each is as long as its choice is the same.
func TestRangesAreWhole(t *testing.T) {
	limited := append([]Candidate{candidate("shm/few", 0.5, 100, 200, 300), candidate("shm/one", 0.1, 100, 512, 512)},
		three...)
	for _, c := range []*Choice{compile(t, "", three), compile(t, "", limited),
		compile(t, "all_reduce:100-1K=nccl", limited),
		compile(t, "", []Candidate{candidate("shm/small", 1, 10, 0, 100), candidate("shm/large", 1, 10, 200, 0)})} {
		next, before := int64(0), "of no range"
		for _, e := range c.Ranges() {
			require.Equal(t, next, e.From)
			require.NotEqual(t, before, e.Chosen)
			for _, bytes := range []int64{e.From, e.From + (e.To-e.From)/2, e.To} {
				require.Equal(t, e.Chosen, name(c, bytes))
				at := c.Explain(bytes)
				require.Equal(t, []int64{e.From, e.To}, []int64{at.From, at.To}, "at %d", bytes)
			}
			next, before = e.To+1, e.Chosen
		}
		require.EqualValues(t, math.MinInt64, next, "the last range has no end")
	}
}

// What ranks compare and errors quote: each choice and each offer in words.
func TestChoicesAndOffersInWords(t *testing.T) {
	c := compile(t, "all_reduce:100-1K=nccl", three)
	require.Equal(t, "shm/one_shot up to 99 bytes, nccl/ring up to 1024 bytes, shm/one_shot up to 4571 bytes, "+
		"shm/two_shot up to 130434 bytes, nccl/ring", c.String())
	require.Equal(t, map[string]string{"shm": "one_shot for up to 65536 bytes, two_shot", "nccl": "ring",
		"rdma": "none, no device"}, c.Offers())
	large := compile(t, "", []Candidate{candidate("shm/large", 1, 10, 200, 0), candidate("shm/some", 9, 10, 300, 400)})
	require.Equal(t, "none up to 199 bytes, shm/large", large.String())
	require.Equal(t, "large for 200 bytes and more, some for 300 to 400 bytes", large.Offers()["shm"])
}

func TestEqualCostsKeepOrder(t *testing.T) {
	c := compile(t, "", []Candidate{candidate("b/x", 1, 10, 0, 0), candidate("a/x", 1, 10, 0, 0)})
	require.Equal(t, "b/x", name(c, 100))
	require.Len(t, c.Ranges(), 1)
}

func TestLimitsLeaveGap(t *testing.T) {
	c := compile(t, "", []Candidate{candidate("shm/small", 1, 10, 0, 100), candidate("shm/large", 1, 10, 200, 0)})
	require.Equal(t, "shm/small", name(c, 100))
	require.Equal(t, -1, c.Pick(101))
	require.Equal(t, -1, c.Pick(199))
	require.Equal(t, "shm/large", name(c, 200))
	err := c.Unsupported(150)
	require.ErrorIs(t, err, plugin.Unsupported)
	require.EqualError(t, err, "all_reduce of float32 sum, world 4 on 1 host, host memory, 150: no algorithm can do this: "+
		"shm/small: takes at most 100 bytes; shm/large: takes at least 200 bytes; rdma: no device")
}

func TestNoCandidate(t *testing.T) {
	_, err := New().Compile(request, nil, map[string]string{"shm": "ranks are on 2 hosts", "nccl": "not installed"})
	require.ErrorIs(t, err, plugin.Unsupported)
	require.EqualError(t, err, "all_reduce of float32 sum, world 4 on 1 host, host memory: no transport can do this: nccl: not installed; shm: ranks are on 2 hosts")
	_, err = New().Compile(request, nil, nil)
	require.ErrorContains(t, err, "none is loaded")
}

func TestBadCosts(t *testing.T) {
	for _, bad := range []Candidate{
		candidate("a/x", -1, 1, 0, 0), candidate("a/x", math.NaN(), 1, 0, 0), candidate("a/x", math.Inf(1), 1, 0, 0),
		candidate("a/x", 1, 0, 0, 0), candidate("a/x", 1, math.NaN(), 0, 0), candidate("a/x", 1, math.Inf(1), 0, 0),
		candidate("a/x", 1, 1, -1, 0), candidate("a/x", 1, 1, 10, 5),
	} {
		_, err := New().Compile(request, []Candidate{bad}, nil)
		require.ErrorIs(t, err, plugin.Protocol, "%+v", bad.Algorithm)
	}
}

func TestOverride(t *testing.T) {
	c := compile(t, "all_gather=zzz/zzz; all_reduce : 1K-64K = shm/two_shot ; *:1M-=shm", three)
	require.Equal(t, "shm/one_shot", name(c, 1023))
	require.Equal(t, "shm/two_shot", name(c, 1024))
	require.Equal(t, "shm/two_shot", name(c, 64<<10))
	require.Equal(t, "shm/two_shot", name(c, 64<<10+1))
	require.Equal(t, "nccl/ring", name(c, 1<<20-1))
	require.Equal(t, "shm/two_shot", name(c, 1<<20), "cheapest of the transport")
}

// What is forced is not silently replaced where it does not fit; a trailing *
// allows it.
func TestOverrideIsStrict(t *testing.T) {
	c := compile(t, "all_reduce=shm/one_shot", three)
	require.Equal(t, "shm/one_shot", name(c, 64<<10))
	require.Equal(t, -1, c.Pick(64<<10+1))
	require.ErrorContains(t, c.Unsupported(1<<20), `1M: no algorithm that SHUNT_ALGO clause "all_reduce=shm/one_shot" allows can do this: shm/one_shot: takes at most 64K bytes; shm/two_shot: SHUNT_ALGO clause`)
	c = compile(t, "all_reduce=shm/one_shot,*", three)
	require.Equal(t, "nccl/ring", name(c, 1<<20))
}

func TestOverrideOfUnknown(t *testing.T) {
	for spec, want := range map[string]string{
		"all_reduce=shm/one_shoot": "has no algorithm shm/one_shoot; there are shm/one_shot, shm/two_shot, nccl/ring; did you mean shm/one_shot?",
		"*=mpi":                    "has no algorithm mpi",
	} {
		o, err := Parse(spec)
		require.NoError(t, err)
		_, err = New(WithOverride(o)).Compile(request, three, map[string]string{"rdma": "no device"})
		require.ErrorContains(t, err, want)
	}
}

// A clause fails the calls that it decides and no name of it serves, and no others.
func TestOverrideOfWhatCannotServe(t *testing.T) {
	for _, test := range []struct {
		spec       string
		bytes      int64
		want, fail string
	}{
		{"*=rdma", 8, "", `no algorithm that SHUNT_ALGO clause "*=rdma" allows can do this: `},
		{"*=rdma,*", 8, "shm/one_shot", ""},
		{"all_reduce=rdma,nccl", 8, "nccl/ring", ""},
		{"all_reduce:1G-=rdma;*=*", 8, "shm/one_shot", ""},
		{"all_reduce:1G-=rdma;*=*", 2 << 30, "", "rdma: no device"},
		{"all_reduce=nccl;*=rdma", 8, "nccl/ring", ""},
	} {
		o, err := Parse(test.spec)
		require.NoError(t, err)
		c, err := New(WithOverride(o)).Compile(request, three, map[string]string{"rdma": "no device"})
		require.NoError(t, err, test.spec)
		if test.fail != "" {
			require.Equal(t, -1, c.Pick(test.bytes), test.spec)
			require.ErrorContains(t, c.Unsupported(test.bytes), test.fail)
			require.ErrorContains(t, c.Unsupported(test.bytes), "rdma: no device")
			require.Equal(t, plugin.Unsupported, plugin.CodeOf(c.Unsupported(test.bytes)))
			continue
		}
		require.Equal(t, test.want, name(c, test.bytes), test.spec)
	}
}

// Ranks may see different sizes of one all_to_all_v, so size decides nothing
// (rule 10).
func TestSizesThatDiffer(t *testing.T) {
	req := request
	req.Collective = plugin.AllToAllV
	c, err := New().Compile(req, three, nil)
	require.NoError(t, err)
	for _, bytes := range []int64{0, 1, 1 << 20, 1 << 40} {
		require.Equal(t, "shm/two_shot", name(c, bytes), "the cheapest one without limits at the nominal size")
	}
	o, err := Parse("all_to_all_v:0-1K=shm")
	require.NoError(t, err)
	_, err = New(WithOverride(o)).Compile(req, three, nil)
	require.ErrorContains(t, err, "the clause can have no size range")
	o, err = Parse("*:0-1K=shm;*=nccl")
	require.NoError(t, err)
	c, err = New(WithOverride(o)).Compile(req, three, nil)
	require.NoError(t, err)
	require.Equal(t, "nccl/ring", name(c, 1))
}

func TestExplain(t *testing.T) {
	c := compile(t, "", three)
	e := c.Explain(100)
	require.Equal(t, "shm/one_shot", e.Chosen)
	require.Equal(t, int64(0), e.From)
	require.Equal(t, int64(4571), e.To)
	require.Equal(t, "estimate", e.Source)
	require.Equal(t, "shm/two_shot", e.Fallback[0].Name)
	require.Equal(t, []Rejection{{Name: "rdma", Reason: "no device"}}, e.Rejected)
	require.Equal(t, `all_reduce float32 sum, 100 bytes, world 4 on 1 host, host memory
  runs shm/one_shot, 1.10 µs (estimate): cheapest of 3; the same from 0 to 4571
  else shm/two_shot, 5.01 µs (estimate): 3.91 µs slower
  else nccl/ring, 20.00 µs (estimate): 18.90 µs slower
  not  rdma: no device`, e.String())
	two := e
	two.Hosts = 2
	require.Contains(t, two.String(), ", world 4 on 2 hosts, host memory\n")
	text, err := json.Marshal(e)
	require.NoError(t, err)
	var back Explanation
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, e, back)
	require.Equal(t, []Rejection{{Name: "shm/one_shot", Reason: "takes at most 64K bytes", Limits: true},
		{Name: "rdma", Reason: "no device"}}, c.Explain(1<<20).Rejected)
	forced := compile(t, "*=nccl,shm/two_shot", three).Explain(100)
	require.Equal(t, "nccl/ring", forced.Chosen)
	require.Equal(t, "later in SHUNT_ALGO's order", forced.Fallback[0].Why)
	require.Contains(t, forced.String(), `not  shm/one_shot: SHUNT_ALGO clause "*=nccl,shm/two_shot" does not name it`)
}

// The ranges must agree with the definition (the cheapest that fits, at each
// size) on random costs, limits, measured points and clauses.
func TestPickAgreesWithDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		var candidates []Candidate
		tuning := &Tuning{}
		for i := range 1 + rng.IntN(8) {
			minBytes, maxBytes := int64(0), int64(0)
			if rng.IntN(3) == 0 {
				minBytes = rng.Int64N(1 << 16)
			}
			if rng.IntN(3) == 0 {
				maxBytes = minBytes + rng.Int64N(1<<20)
			}
			q := "t" + string(rune('a'+i%3)) + "/" + string(rune('a'+i))
			candidates = append(candidates, candidate(q, rng.Float64()*20, 100+rng.Float64()*10000, minBytes, maxBytes))
			if rng.IntN(3) == 0 {
				entry := Entry{Collective: "all_reduce", Algorithm: q}
				for p, at := 0, int64(0); p < 1+rng.IntN(6); p++ {
					entry.Points = append(entry.Points, Point{at, 0.1 + rng.Float64()*100})
					at += 1 + rng.Int64N(1<<18)
				}
				tuning.Entries = append(tuning.Entries, entry)
			}
		}
		o := Override{}
		if rng.IntN(2) == 0 {
			o, _ = Parse("all_reduce:1K-64K=ta,*;*:100K-=ta/a")
		}
		c, err := New(WithOverride(o), WithCosts(Costs{Tuning: tuning})).Compile(request, candidates, nil)
		require.NoError(t, err)
		for range 400 {
			bytes := rng.Int64N(1 << (1 + rng.IntN(30)))
			group, _ := c.group(bytes)
			got, want := c.Pick(bytes), c.cheapest(bytes, group)
			if got != want && (got < 0 || want < 0 || math.Abs(c.costs[got].cost(bytes)-c.costs[want].cost(bytes)) > 1e-9) {
				t.Fatalf("round %d, %d bytes: picked %d, want %d of %+v", round, bytes, got, want, candidates)
			}
		}
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	c := compile(t, "", three)
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = c.Pick(1 << 20) }))
}

func TestDigests(t *testing.T) {
	forced := func(spec string) string {
		o, err := Parse(spec)
		require.NoError(t, err)
		return o.Digest()
	}
	require.Equal(t, forced(""), forced(" ; "))
	require.Equal(t, forced("*:0-1024=shm"), forced("* : -1K = shm"))
	require.NotEqual(t, forced(""), forced("*=shm"))
	tuned := func(us float64, comment string) *Tuning {
		return &Tuning{Comment: comment, Entries: []Entry{{Collective: "all_reduce", Algorithm: "a/b",
			Points: []Point{{8, us}}}}}
	}
	require.Equal(t, Costs{Tuning: tuned(1, "a")}.Digest(), Costs{Tuning: tuned(1, "b"), Mode: ModeGraph}.Digest())
	all := map[string]bool{}
	for _, c := range []Costs{{}, {Mode: ModeEager}, {Tuning: tuned(1, "")}, {Tuning: tuned(2, "")},
		{Builtin: tuned(1, "")}, {Numerics: plugin.NumericsOwn}} {
		require.False(t, all[c.Digest()], "%+v", c)
		all[c.Digest()] = true
	}
}

// Algorithms whose results may differ from the tables' by more than is allowed run where nothing else can or where the
// override names them, others by cost; the explanation tells how to get them.
func TestNumerics(t *testing.T) {
	const long = 1 << 30
	const never, reordered = "SHUNT_NUMERICS is any", "SHUNT_NUMERICS is reordered or any"
	for _, test := range []struct {
		spec          string
		allowed, ring plugin.Numerics
		alone         bool // nothing else serves
		want, why     string
	}{
		{"", plugin.NumericsTables, plugin.NumericsTables, false, "nccl/ring", ""},
		{"", plugin.NumericsTables, plugin.NumericsReordered, false, "shm/two_shot", reordered},
		{"", plugin.NumericsTables, plugin.NumericsOwn, false, "shm/two_shot", never},
		{"", plugin.NumericsReordered, plugin.NumericsReordered, false, "nccl/ring", ""},
		{"", plugin.NumericsReordered, plugin.NumericsOwn, false, "shm/two_shot", never},
		{"", plugin.NumericsOwn, plugin.NumericsReordered, false, "nccl/ring", ""},
		{"", plugin.NumericsOwn, plugin.NumericsOwn, false, "nccl/ring", ""},
		{"all_reduce=*", plugin.NumericsTables, plugin.NumericsOwn, false, "shm/two_shot", never},
		{"all_reduce=nccl", plugin.NumericsTables, plugin.NumericsOwn, false, "nccl/ring", ""},
		{"all_reduce=shm", plugin.NumericsOwn, plugin.NumericsOwn, false, "shm/two_shot", ""},
		{"", plugin.NumericsTables, plugin.NumericsOwn, true, "nccl/ring", ""},
	} {
		o, err := Parse(test.spec)
		require.NoError(t, err)
		ring := three[2]
		ring.Algorithm.Numerics = test.ring
		candidates := []Candidate{three[0], three[1], ring}
		if test.alone {
			candidates = []Candidate{three[0], ring} // the first serves short messages only
		}
		c, err := New(WithOverride(o), WithCosts(Costs{Numerics: test.allowed})).Compile(request, candidates, nil)
		require.NoError(t, err)
		e := c.Explain(long)
		require.Equal(t, test.want, e.Chosen, "%+v", test)
		require.Equal(t, test.want == "nccl/ring" && test.ring != plugin.NumericsTables, e.OwnNumerics)
		if test.why != "" {
			require.Contains(t, e.Fallback[0].Why, test.why)
		}
	}
}

// Where nothing is as near to the tables as is allowed, the nearest runs, though others are cheaper.
func TestNearestNumerics(t *testing.T) {
	own, reordered := three[2], three[1]
	own.Algorithm.Numerics, reordered.Algorithm.Numerics = plugin.NumericsOwn, plugin.NumericsReordered
	c, err := New(WithCosts(Costs{Numerics: plugin.NumericsTables})).Compile(request, []Candidate{own, reordered}, nil)
	require.NoError(t, err)
	e := c.Explain(1 << 30)
	require.Equal(t, reordered.Qualified, e.Chosen)
	require.True(t, e.OwnNumerics)
	require.Less(t, e.Fallback[0].Cost, e.Cost)
	require.Contains(t, e.Fallback[0].Why, "SHUNT_NUMERICS is any")
}

func BenchmarkPick(b *testing.B) {
	o, _ := Parse("")
	c, err := New(WithOverride(o)).Compile(request, three, nil)
	require.NoError(b, err)
	b.ReportAllocs()
	sum := 0
	for i := range b.N {
		sum += c.Pick(int64(i) & (1<<21 - 1))
	}
	require.NotEqual(b, -1, sum)
}

// An algorithm that only other calls of a collective have may be named by an
// override, and is passed over: the next name counts, or nothing runs.
func TestAnOverrideMayNameWhatOnlyOtherCallsHave(t *testing.T) {
	missing := map[string]string{"nccl/copy": "needs receive memory that is registered as symmetric"}
	for spec, want := range map[string]string{"all_reduce=nccl/copy,nccl": "nccl/ring",
		"all_reduce=nccl/copy,*": "shm/one_shot", "all_reduce=nccl/copy": ""} {
		o, err := Parse(spec)
		require.NoError(t, err)
		c, err := New(WithOverride(o)).Compile(request, three, missing)
		require.NoError(t, err, spec)
		require.Equal(t, want, name(c, 100), spec)
		if want == "" {
			require.ErrorContains(t, c.Unsupported(100), "nccl/copy: needs receive memory")
		}
	}
	o, err := Parse("all_reduce=nccl/copies")
	require.NoError(t, err)
	_, err = New(WithOverride(o)).Compile(request, three, missing)
	require.ErrorIs(t, err, plugin.InvalidArgument, "a name that no call has")
	symmetric := request
	symmetric.Symmetric = true
	c, err := New().Compile(symmetric, three, nil)
	require.NoError(t, err)
	require.Contains(t, c.Explain(8).String(), "all_reduce float32 sum, symmetric, 8 bytes")
}
