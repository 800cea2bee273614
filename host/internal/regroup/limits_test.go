package regroup

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// The rank that an error is about is one of the new communicator, or none; what the error wraps stays found.
func TestWhoseTranslatesEveryRankAndNoOther(t *testing.T) {
	cause := errors.New("the wire is cut")
	for rank, want := range map[int]int{-1: -1, 0: 5, 1: 4, 2: -1} {
		err := Whose(&plugin.Error{Code: plugin.System, Rank: rank, Message: "m", Cause: cause}, []int{5, 4}, "world")
		var e *plugin.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, want, e.Rank, "of rank %d", rank)
		require.Equal(t, plugin.System, e.Code)
		require.ErrorIs(t, err, cause)
	}
}

func TestWhoseShowsAsManyRanksAsItSays(t *testing.T) {
	for ranks, want := range map[int]string{
		mostShown:     "(its ranks, from 0 on, are ranks 1" + strings.Repeat(", 1", mostShown-1) + " of world)",
		mostShown + 1: "(its ranks, from 0 on, are ranks 1" + strings.Repeat(", 1", mostShown-1) + " and 1 more of world)",
	} {
		list := make([]int, ranks)
		for i := range list {
			list[i] = 1
		}
		require.ErrorContains(t, Whose(errors.New("m"), list, "world"), want)
	}
}

// Survivors return the error of the lowest rank that gave up, with the code of why it did, and otherwise that of the
// lowest rank which says more than that another has closed. All take the same.
func TestSurvivorsReturnTheErrorOfTheLowestRank(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	died := plugin.Errorf(plugin.PeerDied, "rank 3 died")
	_, err := new(Attempts).Again([][]byte{
		Attempt(t.Context(), 0, died), Attempt(over, 1, died), Attempt(over, 2, died)}, false)
	require.EqualError(t, err, "rank 1 gave up: rank 3 died")
	require.Equal(t, plugin.Aborted, plugin.CodeOf(err), "its context has ended")

	closed := func(text string) []byte { return Attempt(t.Context(), 0, plugin.Errorf(plugin.Closed, "%s", text)) }
	late := func(text string) []byte { return Attempt(t.Context(), 0, plugin.Errorf(plugin.Timeout, "%s", text)) }
	for want, all := range map[string][][]byte{
		"a": {closed("a"), closed("b")},
		"b": {closed("a"), late("b"), closed("c"), late("d")},
	} {
		again, err := new(Attempts).Again(all, false)
		require.EqualError(t, err, want)
		require.False(t, again)
	}
}

func TestALabelOfTheLimitStays(t *testing.T) {
	label := strings.Repeat("x", longestLabel)
	require.Equal(t, label, Label(label))
	require.NotEqual(t, label+"y", Label(label+"y"))
	require.LessOrEqual(t, len(Label(label+"y")), longestLabel)
}
