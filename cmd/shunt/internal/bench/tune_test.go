package bench

import (
	"bytes"
	"context"
	"errors"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda/cudatest"
	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// asked returns the choices of ranks on GPUs in memory.
func asked(t *testing.T, c Config) []Choice {
	t.Helper()
	all := make([][]Choice, c.World)
	ranksOnGPUs(t, c, func(rank int, options host.Options) error {
		comm, err := host.Init(context.Background(), options)
		if err != nil {
			return err
		}
		all[rank], err = Ask(comm, c)
		return errors.Join(err, comm.Close())
	})
	for _, choices := range all {
		require.Equal(t, all[0], choices, "alike on all ranks")
	}
	return all[0]
}

func tuneConfig(world int, mode Mode) Config {
	c := gpuConfig(world, plugin.Float32)
	c.InPlace, c.Modes, c.Tune = false, []Mode{mode}, true
	return c
}

// Every algorithm that is offered is measured, with right results, also those of
// symmetric memory, and the file that comes of it makes the best ones chosen.
func TestTuneOnGPUs(t *testing.T) {
	t.Setenv("SHUNT_HEARTBEAT", "1m")
	c := tuneConfig(2, Graph)
	c.Min, c.Max, c.Factor = 64, 64<<10, 32
	c.Collectives = []string{"all_reduce", "all_gather", "sendrecv", "barrier"}
	choices := asked(t, c)
	list := NewTuned(onGPUs(t, c), choices)
	require.Len(t, list, len(choices))
	require.Contains(t, choices[0].Unfit, "cudaipc/staged", "64 bytes are not for it")
	require.Contains(t, Unmeasured(choices, "all_reduce"), "cudaipc/staged")
	copies := 0
	for i, row := range list {
		require.Empty(t, row.Wrong)
		for _, name := range choices[i].Plain.Usable {
			require.Positive(t, row.Times[name], "%s of %s, %d bytes", name, row.Collective, row.Bytes)
		}
		for _, name := range choices[i].only() {
			require.Positive(t, row.Times[name], "%s of %s, %d bytes", name, row.Collective, row.Bytes)
			copies++
		}
		require.Equal(t, row.Plain.Untuned, choices[i].Plain.Chosen)
		require.LessOrEqual(t, row.Times[row.Plain.Best], row.Times[row.Plain.Untuned])
	}
	require.Positive(t, copies, "symmetric memory opens algorithms")

	tuning := selector.Tuning{Entries: Entries(&c, list, Only{})}
	path := filepath.Join(t.TempDir(), "tuning.json")
	require.NoError(t, tuning.WriteFile(path))
	for _, e := range tuning.Entries {
		require.Equal(t, "cuda", e.Memory)
		require.Equal(t, 2, e.World)
		require.Empty(t, e.DType+e.Op+string(e.Mode))
		require.Equal(t, choices[0].Topology, e.Topology)
		require.NotEmpty(t, e.Topology)
	}
	for _, e := range Entries(&c, list, Only{Mode: true}) {
		require.Equal(t, string(c.Modes[0]), string(e.Mode))
	}
	t.Setenv("SHUNT_TUNING_FILE", path)
	again := asked(t, c)
	for i := range list {
		list[i].Ask(again)
		require.NotEmpty(t, list[i].Plain.Tuned)
		require.Less(t, list[i].Plain.Left, 0.01, "%s, %d bytes", list[i].Collective, list[i].Bytes)
		if s := list[i].Symmetric; s != nil {
			require.NotEmpty(t, s.Tuned)
			require.Less(t, s.Left, 0.01, "%s, %d bytes, symmetric", list[i].Collective, list[i].Bytes)
		}
	}
	require.Empty(t, Misses(list))
}

// An algorithm that is slow loses what it was chosen for.
func TestTuneSlowAlgorithmLoses(t *testing.T) {
	t.Setenv("SHUNT_HEARTBEAT", "1m")
	restore, err := failpoint.Arm("bench.first_algorithm=delay(20ms)")
	require.NoError(t, err)
	defer restore()
	c := tuneConfig(2, Eager)
	c.Collectives, c.Min, c.Max, c.Factor = []string{"all_reduce"}, 16<<10, 32<<10, 2
	choices := asked(t, c)
	require.Equal(t, choices[0].Plain.Chosen, choices[1].Plain.Chosen)
	slow := choices[0].Plain.Chosen
	list := NewTuned(onGPUs(t, c), choices)
	for _, row := range list {
		require.Greater(t, row.Times[slow], 20e3)
		require.NotEqual(t, slow, row.Plain.Best)
		require.Positive(t, row.Plain.Loss)
	}
	path := filepath.Join(t.TempDir(), "tuning.json")
	require.NoError(t, (&selector.Tuning{Entries: Entries(&c, list, Only{})}).WriteFile(path))
	t.Setenv("SHUNT_TUNING_FILE", path)
	again := asked(t, c)
	for i := range list {
		list[i].Ask(again)
		require.NotEqual(t, slow, list[i].Plain.Tuned)
	}
	changes := Changes(list)
	require.NotEmpty(t, changes)
	require.Equal(t, slow, changes[0].Untuned)
	require.Positive(t, changes[0].Least)
}

func TestTrend(t *testing.T) {
	see := func(ratios ...float64) bool {
		tr := &trend{}
		for i, ratio := range ratios {
			tr.see(ratio, worthwhile<<i)
		}
		return tr.gone
	}
	require.True(t, see(9, 9))
	require.True(t, see(1, 20, 30, 1), "for good")
	require.False(t, see(9))
	require.False(t, see(9, 7, 9))
	require.False(t, see(100, 50, 25, 12), "it catches up")
	short := &trend{}
	short.see(50, worthwhile/4)
	short.see(50, worthwhile/2)
	short.see(50, worthwhile)
	require.False(t, short.gone, "what is slow for short messages may suit long ones")
}

// measured returns rows of one collective as they would have been measured; a time of
// 0 is of an algorithm that was given up.
func measured(collective string, chosen string, sizes []int64, times map[string][]float64) []Tuned {
	var rows []Row
	var choices []Choice
	for i, size := range sizes {
		row, a := Row{Collective: collective, Bytes: size},
			Choice{Collective: collective, Bytes: size, Message: size, Plain: Offer{Chosen: chosen}}
		for _, name := range []string{"t/a", "t/b", "t/c"} {
			us, ok := times[name]
			if !ok {
				continue
			}
			a.Plain.Usable = append(a.Plain.Usable, name)
			if us[i] > 0 {
				row.Peers = append(row.Peers, Peer{name, Timing{Microseconds: us[i]}})
			}
		}
		rows, choices = append(rows, row), append(choices, a)
	}
	return NewTuned(rows, choices)
}

// What was given up while it was level does not win at sizes it was not measured
// for, nor beyond.
func TestEntriesOfGivenUp(t *testing.T) {
	c := Config{World: 2, Min: 8, Max: 1 << 20, Factor: 2, DType: plugin.Bfloat16, Op: plugin.OpMax, Tune: true,
		Collectives: []string{"all_reduce"}}
	list := measured("all_reduce", "t/a", []int64{64 << 10, 256 << 10, 1 << 20, 4 << 20},
		map[string][]float64{"t/a": {10, 40, 160, 2640}, "t/b": {200, 400, 0, 0}, "t/c": {11, 39, 170, 2640}})
	require.Equal(t, []string{"t/b"}, list[2].Plain.GivenUp)
	require.Equal(t, "slow", list[2].cell("t/b"))
	entries := Entries(&c, list, Only{DType: true, Op: true})
	require.Len(t, entries, 3)
	require.Equal(t, "half", entries[0].DType)
	require.Equal(t, "max", entries[0].Op)
	require.Len(t, entries[1].Points, 5, "the sizes measured, and one far away")
	var candidates []selector.Candidate
	for _, name := range []string{"a", "b", "c"} {
		candidates = append(candidates, selector.Candidate{Transport: "t", Qualified: "t/" + name,
			Algorithm: plugin.Algorithm{Name: name, Latency: 1, Bandwidth: 1}})
	}
	req := plugin.Request{Collective: plugin.AllReduce, DType: plugin.Bfloat16, Op: plugin.OpMax, World: 2, Hosts: 1}
	costs := selector.Costs{Tuning: &selector.Tuning{Entries: entries}}
	choice, err := selector.New(selector.WithCosts(costs)).Compile(req, candidates, nil)
	require.NoError(t, err)
	for _, bytes := range []int64{256 << 10, 300 << 10, 1 << 20, 3 << 20, 4 << 20, 1 << 30, math.MaxInt64} {
		require.NotEqual(t, 1, choice.Pick(bytes), "%d bytes", bytes)
	}
}

// One algorithm serves all sizes of all_to_all_v: the best in the mean, whichever
// is best at 64K.
func TestEntriesOfOneForAll(t *testing.T) {
	c := Config{World: 2, Tune: true, Collectives: []string{"all_to_all_v", "gather_v"}, DType: plugin.Float32}
	list := measured("all_to_all_v", "t/b", []int64{1 << 10, 64 << 10, 1 << 20},
		map[string][]float64{"t/a": {1, 10, 100}, "t/b": {8, 9, 900}, "t/c": {90, 80, 0}})
	entries := Entries(&c, list, Only{})
	require.Len(t, entries, 3)
	require.Equal(t, []selector.Point{{Bytes: 64 << 10, Microseconds: 9.322}}, entries[0].Points,
		"9 times the cube root of 1, 10/9 and 1")
	require.Less(t, entries[0].Points[0].Microseconds, entries[1].Points[0].Microseconds)
	require.Less(t, entries[1].Points[0].Microseconds, entries[2].Points[0].Microseconds)
	for i := range list {
		list[i].Plain.Tuned = "t/a"
	}
	require.Empty(t, Misses(list))
	require.Equal(t, "all_to_all_v, all sizes: t/a instead of t/b, in the mean 75% less time", Changes(list)[0].String())
	require.Len(t, Changes(list), 1)
	for i := range list {
		list[i].Plain.Tuned = "t/b"
	}
	require.Empty(t, Changes(list))
	require.Contains(t, Misses(list)[0], "all_to_all_v, all sizes: takes t/b, and t/a is better: in the mean 30")
}

func TestTuneReports(t *testing.T) {
	c := Config{World: 2, Memory: plugin.MemoryKindHost, DType: plugin.Float32, Op: plugin.OpSum, Tune: true}
	list := measured("all_reduce", "t/a", []int64{8, 1 << 10, 1 << 20},
		map[string][]float64{"t/a": {2, 3, 4}, "t/b": {1, 2, 8}})
	list[2].Wrong = map[string]int64{"t/b": 1}
	var page bytes.Buffer
	TuneTable(&page, &c, list)
	require.Equal(t, `# all_reduce: µs of one operation, slowest rank, median; 2 ranks, host memory, float32 sum
#   buffer   message       t/a       t/b  best     untuned  loss
         8         8      2.00      1.00  t/b      t/a      100%
        1K        1K      3.00      2.00  t/b      t/a       50%
        1M        1M      4.00     wrong  t/a      t/a         0

`, page.String())
	require.Empty(t, Changes(list), "nobody was asked")
	for i, tuned := range []string{"t/b", "t/b", "t/b"} {
		list[i].Ask([]Choice{{Collective: "all_reduce", Bytes: list[i].Bytes, Message: list[i].Message,
			Plain: Offer{Chosen: tuned}}})
	}
	changes := Changes(list)
	require.Len(t, changes, 1)
	require.Equal(t, "all_reduce, 8 to 1M: t/b instead of t/a, -100% to 50% less time", changes[0].String())
	require.Equal(t, []string{"all_reduce, 1M: takes t/b, and t/a is best: 100% slower"}, Misses(list))
	require.Equal(t, 2, Algorithms([]Choice{list[0].choice, {Collective: "reduce"}}, "all_reduce"))
	require.Zero(t, Algorithms([]Choice{list[0].choice, {Collective: "reduce"}}, "reduce"))
	unfit := []Choice{{Collective: "reduce", Unfit: []string{"t/a", "t/b"}},
		{Collective: "reduce", Plain: Offer{Usable: []string{"t/b"}}, Unfit: []string{"t/a"}}}
	require.Equal(t, []string{"t/a"}, Unmeasured(unfit, "reduce"))
	require.Empty(t, Unmeasured(unfit, "all_reduce"))
}

// What a tuning cannot be is refused.
// What numerics keep from being chosen no file can make run: it is no candidate, except where regret is explained.
func TestBarredAlgorithmsAreNoCandidates(t *testing.T) {
	e := selector.Explanation{Chosen: "shm/two_shot", Fallback: []selector.Alternative{
		{Name: "nccl/tuned", Barred: true, Why: "rounds in its own way", Source: "estimate"}, {Name: "shm/one_shot"}}}
	require.Equal(t, []string{"shm/two_shot", "shm/one_shot"}, offerOf(&e, false).Usable)
	require.Equal(t, []string{"shm/two_shot", "nccl/tuned", "shm/one_shot"}, offerOf(&e, true).Usable)
	require.Equal(t, "rounds in its own way (estimate)", offerOf(&e, false).Why["nccl/tuned"])
}

func TestTuneConfig(t *testing.T) {
	require.NotContains(t, TuneNames(), "put")
	require.Contains(t, TuneNames(), "sendrecv")
	good := Config{World: 2, Min: 8, Max: 64, Factor: 4, DType: plugin.Float32, Tune: true, Memory: plugin.MemoryKindCuda,
		Modes: []Mode{Graph}}
	require.NoError(t, good.Check())
	require.Len(t, good.Apart(), len(TuneNames()))
	for _, spoil := range []func(*Config){
		func(c *Config) { c.Collectives = []string{"put"} },
		func(c *Config) { c.InPlace = true },
		func(c *Config) { c.Symmetric = true },
		func(c *Config) { c.Against = []string{NCCL} },
		func(c *Config) { c.Modes = []Mode{Graph, Eager} },
	} {
		c := good
		spoil(&c)
		require.ErrorIs(t, c.Check(), plugin.InvalidArgument)
	}
}

// On GPUs what is chosen is measured on plain and on symmetric memory, each beside what could run there.
func TestRegretsOnGPUs(t *testing.T) {
	t.Setenv("SHUNT_HEARTBEAT", "1m")
	c := tuneConfig(2, Graph)
	c.Min, c.Max, c.Factor, c.Regret, c.Symmetric = 64, 64, 2, true, true
	c.Collectives = []string{"all_gather", "barrier"}
	choices := asked(t, c)
	rows := onGPUs(t, c)
	require.Zero(t, WrongOf(rows))
	list := Regrets(rows, choices)
	require.Len(t, list, 4)
	for i, r := range list {
		a, offer := &choices[i/2], &choices[i/2].Plain
		require.Equal(t, i%2 == 1, r.Symmetric)
		if r.Symmetric && a.Symmetric != nil {
			offer = a.Symmetric
		}
		require.Equal(t, offer.Chosen, r.Chosen)
		require.Len(t, r.Times, 1+len(offer.Usable))
		for name, us := range r.Times {
			require.Positive(t, us, "%s of %s", name, r.Collective)
		}
		require.Equal(t, r.Times[r.Best], r.BestTime)
		require.Equal(t, Graph, r.Mode)
	}
	require.NotNil(t, choices[0].Symmetric, "or nothing here is tested")
}

// Of what is measured the best right result counts, NCCL's too, and what stands in the table is what is clearly slower.
func TestRegretTable(t *testing.T) {
	peer := func(name string, us, spread float64, wrong int64) Peer {
		return Peer{name, Timing{Microseconds: us, P25: us - spread, P75: us + spread, Wrong: wrong, batches: 9}}
	}
	rows := []Row{
		{Collective: "reduce", Mode: Graph, Bytes: 8, Peers: []Peer{peer(Auto, 10, 1, 0), peer("t/a", 10, 1, 0),
			peer("t/b", 1, 0, 5), peer(NCCL, 8, 0.5, 0)}},
		{Collective: "reduce", Mode: Graph, Bytes: 16, Peers: []Peer{peer(Auto, 10.2, 1, 0), peer("t/a", 10, 1, 0)}},
		{Collective: "reduce", Mode: Graph, Bytes: 32, Skipped: "nobody"},
		{Collective: "reduce", Mode: Graph, Bytes: 64, Peers: []Peer{peer(Auto, 11, 1, 0), peer("t/a", 10, 1, 0)}},
	}
	var choices []Choice
	for _, row := range rows {
		choices = append(choices, Choice{Collective: "reduce", Bytes: row.Bytes, Message: row.Bytes,
			Plain: Offer{Chosen: "t/a", Usable: []string{"t/a", "t/b"}}})
	}
	list := Regrets(rows, choices)
	require.Len(t, list, 3)
	require.Equal(t, NCCL, list[0].Best)
	require.InDelta(t, 0.25, list[0].Loss, 1e-9)
	require.True(t, list[0].Clear)
	require.False(t, list[2].Clear)
	require.Equal(t, map[string]int64{"t/b": 5}, list[0].Wrong)
	require.Equal(t, 1, WrongOf(rows))
	var text bytes.Buffer
	RegretTable(&text, list)
	require.Regexp(t, `\nreduce +graph +8 +8  t/a +10.00  nccl +8.00 +25% .*\nreduce +graph +64 +64  t/a +11.00  t/a +10.00 +10%~ .*\n# 2 of 3 sizes, 1 of them within noise; chosen / best, mean of all sizes: 1.119\n$`, text.String())
}

// Ranks share devices only where they may.
func TestDeviceOf(t *testing.T) {
	driver := cudatest.New(cudatest.Options{Devices: 2})
	defer driver.Close()
	for share, want := range map[string][]int{"off": {0, 1, 2, 3}, "on": {0, 1, 0, 1}} {
		t.Setenv("SHUNT_SHARE_GPU", share)
		for rank := range want {
			device, err := DeviceOf(rank, driver)
			require.NoError(t, err)
			require.Equal(t, want[rank], device)
		}
	}
}

// What is chosen stays the best where only noise says that another is faster, in the tables and with the file.
func TestNoiseChangesNoChoice(t *testing.T) {
	timing := func(us, spread float64, batches int) Timing {
		return Timing{Microseconds: us, P25: us - spread, P75: us + spread, batches: batches}
	}
	for _, test := range []struct {
		chosen, other Timing
		best          string
	}{
		{timing(10, 1, 9), timing(9, 1, 9), "t/a"},
		{timing(10, 0.3, 9), timing(9, 0.3, 9), "t/b"},
		{timing(10, 1, 3), timing(9, 1, 3), "t/b"}, // too few to tell
		{timing(9, 1, 9), timing(10, 1, 9), "t/a"},
	} {
		c := Config{World: 2, DType: plugin.Float32, Tune: true, Collectives: []string{"all_reduce"}}
		rows := []Row{{Collective: "all_reduce", Bytes: 64, Peers: []Peer{{"t/a", test.chosen}, {"t/b", test.other}}}}
		list := NewTuned(rows, []Choice{{Collective: "all_reduce", Bytes: 64, Message: 64,
			Plain: Offer{Chosen: "t/a", Usable: []string{"t/a", "t/b"}}}})
		require.Equal(t, test.best, list[0].Plain.Best)
		require.Equal(t, test.best != "t/a", list[0].Plain.Loss > 0)
		require.Equal(t, map[string]float64{"t/a": test.chosen.Microseconds, "t/b": test.other.Microseconds}, list[0].Times)
		var candidates []selector.Candidate
		for _, name := range []string{"b", "a"} {
			candidates = append(candidates, selector.Candidate{Transport: "t", Qualified: "t/" + name,
				Algorithm: plugin.Algorithm{Name: name, Latency: 1, Bandwidth: 1}})
		}
		req := plugin.Request{Collective: plugin.AllReduce, DType: plugin.Float32, World: 2, Hosts: 1}
		tuning := &selector.Tuning{Entries: Entries(&c, list, Only{})}
		choice, err := selector.New(selector.WithCosts(selector.Costs{Tuning: tuning})).Compile(req, candidates, nil)
		require.NoError(t, err)
		require.Equal(t, test.best, choice.Explain(64).Chosen)
	}
}
