package bench

import (
	"bytes"
	"context"
	"errors"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// asked is what ranks on GPUs in memory answer.
func asked(t *testing.T, c Config) []Answer {
	t.Helper()
	all := make([][]Answer, c.World)
	ranksOnGPUs(t, c, func(rank int, options host.Options) error {
		comm, err := host.Init(context.Background(), options)
		if err != nil {
			return err
		}
		all[rank], err = Ask(comm, c)
		return errors.Join(err, comm.Close())
	})
	for _, answers := range all {
		require.Equal(t, all[0], answers, "alike on all ranks")
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
	answers := asked(t, c)
	list := NewTuned(onGPUs(t, c), answers)
	require.Len(t, list, len(answers))
	require.Contains(t, answers[0].Unfit, "cudaipc/staged", "64 bytes are not for it")
	require.Contains(t, Unmeasured(answers, "all_reduce"), "cudaipc/staged")
	copies := 0
	for i, row := range list {
		require.Empty(t, row.Wrong)
		for _, name := range answers[i].Plain.Usable {
			require.Positive(t, row.Times[name], "%s of %s, %d bytes", name, row.Collective, row.Bytes)
		}
		for _, name := range answers[i].only() {
			require.Positive(t, row.Times[name], "%s of %s, %d bytes", name, row.Collective, row.Bytes)
			copies++
		}
		require.Equal(t, row.Plain.Untuned, answers[i].Plain.Chosen)
		require.LessOrEqual(t, row.Times[row.Plain.Best], row.Times[row.Plain.Untuned])
	}
	require.Positive(t, copies, "symmetric memory opens algorithms")

	tuning := selector.Tuning{Entries: Entries(&c, list, false, false)}
	path := filepath.Join(t.TempDir(), "tuning.json")
	require.NoError(t, tuning.WriteFile(path))
	for _, e := range tuning.Entries {
		require.Equal(t, "cuda", e.Memory)
		require.Equal(t, 2, e.World)
		require.Empty(t, e.DType+e.Op)
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
	answers := asked(t, c)
	require.Equal(t, answers[0].Plain.Chosen, answers[1].Plain.Chosen)
	slow := answers[0].Plain.Chosen
	list := NewTuned(onGPUs(t, c), answers)
	for _, row := range list {
		require.Greater(t, row.Times[slow], 20e3)
		require.NotEqual(t, slow, row.Plain.Best)
		require.Positive(t, row.Plain.Loss)
	}
	path := filepath.Join(t.TempDir(), "tuning.json")
	require.NoError(t, (&selector.Tuning{Entries: Entries(&c, list, false, false)}).WriteFile(path))
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

// measured are rows of one collective as they would have been measured; a time of
// 0 is of an algorithm that was given up.
func measured(collective string, chosen string, sizes []int64, times map[string][]float64) []Tuned {
	var rows []Row
	var answers []Answer
	for i, size := range sizes {
		row, a := Row{Collective: collective, Bytes: size},
			Answer{Collective: collective, Bytes: size, Message: size, Plain: Offer{Chosen: chosen}}
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
		rows, answers = append(rows, row), append(answers, a)
	}
	return NewTuned(rows, answers)
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
	entries := Entries(&c, list, true, true)
	require.Len(t, entries, 3)
	require.Equal(t, "bfloat16", entries[0].DType)
	require.Equal(t, "max", entries[0].Op)
	require.Len(t, entries[1].Points, 4)
	var candidates []selector.Candidate
	for _, name := range []string{"a", "b", "c"} {
		candidates = append(candidates, selector.Candidate{Transport: "t", Qualified: "t/" + name,
			Algorithm: plugin.Algorithm{Name: name, Latency: 1, Bandwidth: 1}})
	}
	req := plugin.Request{Collective: plugin.AllReduce, DType: plugin.Bfloat16, Op: plugin.OpMax, World: 2, Hosts: 1}
	choice, err := selector.New(selector.WithTuning(&selector.Tuning{Entries: entries})).Compile(req, candidates, nil)
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
	entries := Entries(&c, list, false, false)
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
		list[i].Ask([]Answer{{Collective: "all_reduce", Bytes: list[i].Bytes, Message: list[i].Message,
			Plain: Offer{Chosen: tuned}}})
	}
	changes := Changes(list)
	require.Len(t, changes, 1)
	require.Equal(t, "all_reduce, 8 to 1M: t/b instead of t/a, -100% to 50% less time", changes[0].String())
	require.Equal(t, []string{"all_reduce, 1M: takes t/b, and t/a is best: 100% slower"}, Misses(list))
	require.Equal(t, 2, Choices([]Answer{list[0].answer, {Collective: "reduce"}}, "all_reduce"))
	require.Zero(t, Choices([]Answer{list[0].answer, {Collective: "reduce"}}, "reduce"))
	unfit := []Answer{{Collective: "reduce", Unfit: []string{"t/a", "t/b"}},
		{Collective: "reduce", Plain: Offer{Usable: []string{"t/b"}}, Unfit: []string{"t/a"}}}
	require.Equal(t, []string{"t/a"}, Unmeasured(unfit, "reduce"))
	require.Empty(t, Unmeasured(unfit, "all_reduce"))
}

// What a tuning cannot be is refused.
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
