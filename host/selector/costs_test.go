package selector

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// entryOf returns an entry of all_reduce by shm/one_shot with one cost.
func entryOf(us float64, change func(*Entry)) Entry {
	e := Entry{Collective: "all_reduce", Algorithm: "shm/one_shot", Points: []Point{{8, us}}}
	change(&e)
	return e
}

// Every key restricts an entry to what it names, and the entry that names most wins; a dtype says more than its class.
func TestKeysOfEntries(t *testing.T) {
	yes, no := true, false
	file := &Tuning{Entries: []Entry{
		entryOf(1, func(*Entry) {}),
		entryOf(2, func(e *Entry) { e.Topology = "h200-nvlink" }),
		entryOf(3, func(e *Entry) { e.Topology, e.Mode = "h200-nvlink", ModeEager }),
		entryOf(4, func(e *Entry) { e.DType, e.World = "half", 7 }),
		entryOf(5, func(e *Entry) { e.DType, e.World = "bfloat16", 7 }),
		entryOf(6, func(e *Entry) { e.Symmetric, e.World = &yes, 6 }),
		entryOf(7, func(e *Entry) { e.Symmetric, e.World = &no, 6 }),
	}}
	for _, test := range []struct {
		want   float64
		place  string
		mode   Mode
		change func(*plugin.Request)
	}{
		{1, "a100-pcie", ModeGraph, func(*plugin.Request) {}},
		{2, "h200-nvlink", "", func(*plugin.Request) {}},
		{2, "h200-nvlink", ModeGraph, func(*plugin.Request) {}},
		{3, "h200-nvlink", ModeEager, func(*plugin.Request) {}},
		{4, "a100-pcie", ModeGraph, func(r *plugin.Request) { r.World, r.DType = 7, plugin.Float16 }},
		{5, "a100-pcie", ModeGraph, func(r *plugin.Request) { r.World, r.DType = 7, plugin.Bfloat16 }},
		{1, "a100-pcie", ModeGraph, func(r *plugin.Request) { r.World, r.DType = 7, plugin.Float32 }},
		{6, "a100-pcie", ModeGraph, func(r *plugin.Request) { r.World, r.Symmetric = 6, true }},
		{7, "a100-pcie", ModeGraph, func(r *plugin.Request) { r.World = 6 }},
	} {
		req := request
		test.change(&req)
		c, err := New(WithCosts(Costs{Mode: test.mode, Tuning: file})).On(test.place).Compile(req, three, nil)
		require.NoError(t, err)
		require.Equal(t, test.want, c.costs[0].cost(8), "%+v", test)
		require.Equal(t, SourceMeasured, c.sources[0])
		require.Equal(t, test.place, c.Explain(8).Topology)
	}
	for _, d := range plugin.DTypes() {
		require.Contains(t, dtypeClasses, DTypeClass(d))
	}
}

// An entry counts for the calls that it names alone: each field, with the call's own value, leaves it, and with any
// other one takes it out.
func TestEveryFieldRestrictsItsEntry(t *testing.T) {
	symmetric := request.Symmetric
	unlike := !symmetric
	values := map[string]struct{ own, other any }{
		"Collective": {request.Collective.String(), "broadcast"},
		"Algorithm":  {"shm/one_shot", "shm/other"},
		"DType":      {request.DType.String(), plugin.Float64.String()},
		"Op":         {request.Op.String(), plugin.OpProd.String()},
		"World":      {request.World, request.World + 1},
		"Hosts":      {request.Hosts, request.Hosts + 1},
		"Memory":     {request.Memory.String(), "cuda"},
		"Topology":   {"here", "elsewhere"},
		"Mode":       {ModeEager, ModeGraph},
		"Symmetric":  {&symmetric, &unlike},
	}
	source := func(e Entry) string {
		costs := Costs{Mode: ModeEager, Tuning: &Tuning{Entries: []Entry{e}}}
		c, err := New(WithCosts(costs)).On("here").Compile(request, three, nil)
		require.NoError(t, err)
		return c.sources[0]
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Entry]()) {
		if field.Name == "Points" {
			continue
		}
		require.Contains(t, values, field.Name)
		e := entryOf(1, func(*Entry) {})
		at := reflect.ValueOf(&e).Elem().FieldByIndex(field.Index)
		at.Set(reflect.ValueOf(values[field.Name].own))
		require.Equal(t, SourceMeasured, source(e), field.Name)
		at.Set(reflect.ValueOf(values[field.Name].other))
		require.Equal(t, SourceEstimate, source(e), field.Name)
	}
}

// The user's file goes before what is built in, and that before estimates; the source says which it was.
func TestSourcesOfCosts(t *testing.T) {
	builtin := &Tuning{Entries: []Entry{
		entryOf(3, func(e *Entry) { e.Algorithm = "nccl/ring" }),
		entryOf(4, func(*Entry) {}),
	}}
	costs := Costs{Tuning: &Tuning{Entries: []Entry{entryOf(2, func(*Entry) {})}}, Builtin: builtin}
	c, err := New(WithCosts(costs)).Compile(request, three, nil)
	require.NoError(t, err)
	e := c.Explain(8)
	require.Equal(t, "shm/one_shot 2 measured", fmt.Sprint(e.Chosen, " ", e.Cost, " ", e.Source))
	second := e.Fallback[0]
	require.Equal(t, "nccl/ring 3 built in", fmt.Sprint(second.Name, " ", second.Cost, " ", second.Source))
	require.Equal(t, "shm/two_shot estimate", fmt.Sprint(e.Fallback[1].Name, " ", e.Fallback[1].Source))
}

// What a rank takes from another has to be what a file may hold.
func TestDecodeCosts(t *testing.T) {
	costs := Costs{Mode: ModeEager, Tuning: &Tuning{Version: 1, Entries: []Entry{entryOf(2, func(*Entry) {})}}}
	back, err := DecodeCosts(costs.Encode())
	require.NoError(t, err)
	require.Equal(t, costs, back)
	bad := costs
	bad.Builtin = &Tuning{Entries: []Entry{entryOf(-2, func(*Entry) {})}}
	for text, want := range map[string]string{
		"":                           "malformed costs",
		`{"mode": "x"}`:              `mode "x" is unknown`,
		string(bad.Encode()):         "cost of -2 µs",
		string(make([]byte, 13<<20)): "want at most",
	} {
		_, err := DecodeCosts([]byte(text))
		require.ErrorIs(t, err, plugin.Protocol)
		require.ErrorContains(t, err, want)
	}
	require.True(t, json.Valid(costs.Encode()))
}

// What other ranks take of a file is not longer for its comment, of which JSON escapes some characters.
func TestCommentsStayOnTheirRank(t *testing.T) {
	text := `{"shunt_tuning": 1, "comment": "` + strings.Repeat("<", maxTuningBytes-100) + `", "entries": []}`
	tuning, err := ParseTuning([]byte(text))
	require.NoError(t, err)
	costs := Costs{Tuning: tuning}
	require.Less(t, len(costs.Encode()), 100)
	_, err = DecodeCosts(costs.Encode())
	require.NoError(t, err)
	require.Len(t, tuning.Comment, maxTuningBytes-100)
}
