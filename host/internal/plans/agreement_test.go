package plans

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/bootstrap/wire"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// peer is the group of rank 0 and of one whose payload is what it makes of rank 0's.
type peer func(mine []byte) []byte

func (p peer) Agree(context.Context, string, error) error { return nil }

func (p peer) AllGather(_ context.Context, _ string, payload []byte) ([][]byte, error) {
	return [][]byte{payload, p(payload)}, nil
}

// comparing returns rank 0's planner, whose peer calls what change makes of rank 0's call, and the failures that it
// reports.
func comparing(t *testing.T, change func(*callInfo)) (*Planner, *[]*plugin.Error) {
	pl := planning(0, nil)
	pl.SetTimeout(1 << 40)
	pl.Stall = 1 << 40
	pl.Topology = topology.New([]topology.Place{{Host: "a", HostID: "a"}, {Rank: 1, Host: "a", HostID: "a"}})
	pl.Failure.SetUp("")
	failures := &[]*plugin.Error{}
	pl.Fail = func(reason *plugin.Error, spread bool) {
		require.False(t, spread, "all ranks find it")
		*failures = append(*failures, reason)
		if pl.Failure.Set(reason) {
			pl.Failure.Told()
		}
	}
	pl.Group = peer(func(mine []byte) []byte {
		var info callInfo
		require.NoError(t, json.Unmarshal(mine[len(prefixed(nil)):], &info))
		change(&info)
		return prefixed(encode(info))
	})
	return pl, failures
}

// prefixed returns the only part of a payload of round.Gather: how much is to come, and the text.
func prefixed(text []byte) []byte {
	var w wire.Writer
	w.U32(0)
	w.Bytes(text)
	return w.B
}

// Ranks that differ in anything that all must call alike learn who differs, and what both have called; the communicator
// fails. In nothing else they need be alike.
func TestCallsThatDifferAreNamed(t *testing.T) {
	reduce := call.Call{Collective: plugin.Reduce, DType: plugin.Float32, Op: plugin.OpSum, Size: 16, Root: 1}
	for name, test := range map[string]struct {
		change func(*callInfo)
		want   string // of rank 1's call; "": ranks agree
	}{
		"equal": {func(*callInfo) {}, ""},
		"number": {func(a *callInfo) { a.Seq++ },
			"#8 reduce, count 4 of float32, op sum, root 1"},
		"kind": {func(a *callInfo) { a.Collective = plugin.AllReduce },
			"#7 all_reduce, count 4 of float32, op sum, root 1"},
		"dtype":  {func(a *callInfo) { a.DType = plugin.Int32 }, "#7 reduce, count 4 of int32, op sum, root 1"},
		"op":     {func(a *callInfo) { a.Op = plugin.OpMax }, "#7 reduce, count 4 of float32, op max, root 1"},
		"length": {func(a *callInfo) { a.Size -= 4 }, "#7 reduce, count 3 of float32, op sum, root 1"},
		"root":   {func(a *callInfo) { a.Root = 0 }, "#7 reduce, count 4 of float32, op sum, root 0"},
		"symmetric": {func(a *callInfo) { a.Symmetric = true },
			"#7 reduce, count 4 of float32, op sum, root 1, symmetric"},
		"counts on the device": {func(a *callInfo) { a.OnDevice = true },
			"#7 reduce, count 4 of float32, op sum, root 1, counts on the device"},
	} {
		pl, failures := comparing(t, test.change)
		err := pl.Compare(t.Context(), 7, &reduce)
		if test.want == "" {
			require.NoError(t, err, name)
			require.Empty(t, *failures, name)
			continue
		}
		require.Equal(t, plugin.Mismatch, plugin.CodeOf(err), name)
		require.ErrorContains(t, err, "rank 0 called #7 reduce, count 4 of float32, op sum, root 1; rank 1 called "+test.want)
		require.Len(t, *failures, 1, name)
		require.Equal(t, 1, (*failures)[0].Rank, name)
	}
}

// A rank that cannot go on, and one that chooses other algorithms, fail the call on all ranks. The communicator fails
// where a transport is stuck, as it stays so, and where ranks would run different algorithms.
func TestRanksThatCannotGoOnAreNamed(t *testing.T) {
	with := func(code plugin.Code) func(*callInfo) {
		return func(a *callInfo) { a.Code, a.Message = code, "no such thing" }
	}
	for name, test := range map[string]struct {
		change func(*callInfo)
		code   plugin.Code
		fails  bool
		want   string
	}{
		"unsupported": {with(plugin.Unsupported), plugin.Unsupported, false, "rank 1: no such thing"},
		"stuck":       {with(plugin.Timeout), plugin.Timeout, true, "rank 1: no such thing"},
		"died":        {with(plugin.PluginDied), plugin.PluginDied, true, "rank 1: no such thing"},
		"another choice": {func(a *callInfo) { a.Choice, a.Offers = "shm/ring", map[string]string{"shm": "ring"} },
			plugin.Mismatch, true, "; rank 1 shm/ring; transport shm offers rank 0 nothing, and rank 1 ring"},
		"bytes for more plans": {func(a *callInfo) { a.Published.add([]byte("more")) },
			plugin.Protocol, false, "rank 1 published for 1 endpoints and plans, want 0"},
	} {
		pl, failures := comparing(t, test.change)
		err := pl.Compare(t.Context(), 7, &sum)
		require.Equal(t, test.code, plugin.CodeOf(err), name)
		require.ErrorContains(t, err, test.want, name)
		require.Equal(t, test.fails, len(*failures) > 0, name)
	}
}

// What a rank published for each item may name any number; only those of its texts are taken.
func TestPublishedTextsAreThoseOfTheList(t *testing.T) {
	texts := [][]byte{[]byte("a"), []byte("b")}
	for name, test := range map[string]struct {
		of    []int
		items int
		want  string
	}{
		"each once":        {[]int{0, 1}, 2, ""},
		"one twice":        {[]int{1, 1}, 2, ""},
		"none":             {nil, 0, ""},
		"before the first": {[]int{0, -1}, 2, "rank 3 published 2 texts, of which it names number -1"},
		"behind the last":  {[]int{2, 0}, 2, "rank 3 published 2 texts, of which it names number 2"},
		"too few":          {[]int{0}, 2, "rank 3 published for 1 endpoints and plans, want 2"},
		"too many":         {[]int{0, 1, 0}, 2, "rank 3 published for 3 endpoints and plans, want 2"},
	} {
		list, err := (&published{texts, test.of}).get(3, test.items)
		if test.want != "" {
			require.EqualError(t, err, test.want, name)
			require.Equal(t, plugin.Protocol, plugin.CodeOf(err), name)
			continue
		}
		require.NoError(t, err, name)
		for i, at := range test.of {
			require.Equal(t, texts[at], list[i], name)
		}
	}
}

// A signature whose plans were dropped is prepared anew, also if it is the one that was looked up last.
func TestDroppedPlansAreNotFound(t *testing.T) {
	keys := []call.Signature{call.SignatureOf(plugin.AllReduce, plugin.Float32, plugin.OpSum),
		call.SignatureOf(plugin.Barrier, plugin.Uint8, plugin.OpSum)}
	for _, latest := range keys {
		for name, drop := range map[string]func(*cache){
			"one": func(c *cache) { c.drop(keys[0]) }, "all": func(c *cache) { c.free() },
		} {
			var c cache
			for _, key := range keys {
				c.store(key, newPrepared(&selector.Choice{}))
			}
			require.NotNil(t, c.lookup(latest))
			drop(&c)
			require.Nil(t, c.lookup(keys[0]), "%s of the plans dropped behind a call of %s", name, latest.Collective)
			require.Nil(t, c.find(keys[0]))
			require.Equal(t, name == "one", c.lookup(keys[1]) != nil)
		}
	}
}
