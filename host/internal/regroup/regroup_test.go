package regroup

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// What ranks do that have met different ends of one attempt.
func TestSurvivorsTryAgainTogether(t *testing.T) {
	died, lost := plugin.Errorf(plugin.PeerDied, "rank 3 died"), plugin.Errorf(plugin.PluginDied, "the plugin died")
	closed, late := plugin.Errorf(plugin.Closed, "rank 3 has closed it"), plugin.Errorf(plugin.Timeout, "it took too long")
	over, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		died  bool // a rank that took part
		last  int
		errs  []error
		again bool
		want  string // the error otherwise; "": none
	}{
		"all have it":                    {false, -1, []error{nil, nil, nil}, false, ""},
		"all have it, and a rank died":   {true, -1, []error{nil, nil, nil}, true, ""},
		"one heard of a death":           {false, -1, []error{closed, died, late}, true, ""},
		"one has it":                     {false, -1, []error{nil, died, lost}, true, ""},
		"one lost a plugin":              {false, -1, []error{late, late, lost}, true, ""},
		"one may not try again":          {true, 2, []error{died, nil, late}, false, "rank 2 gave up: " + late.Error()},
		"nobody died":                    {false, -1, []error{nil, late, closed}, false, late.Error()},
		"one knows why another closed":   {false, -1, []error{closed, late, closed}, false, late.Error()},
		"the last to try has it already": {false, 0, []error{nil, died, died}, true, ""},
	} {
		var all [][]byte
		for rank, err := range c.errs {
			ctx := t.Context()
			if rank == c.last {
				ctx = over
			}
			all = append(all, Attempt(ctx, rank, err))
		}
		again, err := new(Attempts).Again(all, c.died)
		assert.Equal(t, c.again, again, name)
		if c.want == "" {
			assert.NoError(t, err, name)
		} else {
			assert.EqualError(t, err, c.want, name)
		}
	}
}

// Plugins may die whenever they are used: survivors try again a few times, and anew once a rank has died.
func TestSurvivorsOfPluginsGiveUp(t *testing.T) {
	lost := [][]byte{Attempt(t.Context(), 0, plugin.Errorf(plugin.PluginDied, "the plugin died"))}
	var a Attempts
	for _, died := range []bool{false, false, true, false, false} {
		again, err := a.Again(lost, died)
		require.NoError(t, err)
		require.True(t, again)
	}
	again, err := a.Again(lost, false)
	require.ErrorIs(t, err, plugin.PluginDied)
	require.False(t, again)
	_, err = a.Again([][]byte{{1}}, false)
	require.ErrorIs(t, err, plugin.Protocol)
}

func TestRanksOfAColorAreInTheOrderOfTheirKeys(t *testing.T) {
	all := [][]byte{Color(1, 5), Color(-1, 0), Color(1, -3), Color(2, 0), Color(1, 5)}
	ranks, err := OfColor(all, 1)
	require.NoError(t, err)
	require.Equal(t, []int{2, 0, 4}, ranks)
	all[3] = all[3][:3]
	_, err = OfColor(all, 1)
	require.ErrorIs(t, err, plugin.Protocol)
	require.ErrorContains(t, err, "rank 3 sent a malformed color")
}

func TestSubsetsHaveNamesOfTheirOwn(t *testing.T) {
	name := func(ranks ...int) string {
		name, err := Subset(ranks, 1, 4)
		require.NoError(t, err)
		return name
	}
	require.Equal(t, "2978848ba26b2705", name(3, 2, 1), "alike on all ranks, of all versions")
	require.NotEqual(t, name(1, 2), name(2, 1))
	for _, ranks := range [][]int{{1, 4}, {1, -1}, {1, 1}, {0, 2}} {
		_, err := Subset(ranks, 1, 4)
		require.ErrorIs(t, err, plugin.InvalidArgument, "%v", ranks)
	}
}

func TestWhoseNamesTheRanksOfTheOldCommunicator(t *testing.T) {
	err := &plugin.Error{Code: plugin.Timeout, Rank: 1, Message: "no answer from rank 1"}
	require.Equal(t, error(err), Whose(err, []int{0, 1}, "world"), "the numbers are the same")
	require.NoError(t, Whose(nil, []int{1, 0}, "world"))
	whose := Whose(err, []int{3, 2}, "world")
	require.EqualError(t, whose, "no answer from rank 1 (its ranks, from 0 on, are ranks 3, 2 of world)")
	var e *plugin.Error
	require.ErrorAs(t, whose, &e)
	require.Equal(t, 2, e.Rank)
	many := make([]int, 20)
	require.ErrorContains(t, Whose(err, many, "world"), "0, 0 and 4 more of world)")
}

func TestLongLabelsAreShortened(t *testing.T) {
	require.Equal(t, "world/1.0", Label("world/1.0"))
	a, b := Label("world"+strings.Repeat("/1.0", 50)), Label("world"+strings.Repeat("/1.0", 51))
	require.LessOrEqual(t, len(a), longestLabel)
	require.NotEqual(t, a, b)
}

func TestCountersCountEachKindByItself(t *testing.T) {
	var c Counters
	require.Equal(t, []int{1, 1, 2}, []int{c.Next("split"), c.Next("shrink"), c.Next("split")})
}
