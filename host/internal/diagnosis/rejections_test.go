package diagnosis

import (
	"testing"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestRejectionsExplainOnlyWhatTheyMay(t *testing.T) {
	sum := func(seq uint64) State { return State{Valid: true, Seq: seq, Collective: plugin.AllReduce} }
	closed := func(seq uint64) State { return State{Valid: true, Seq: seq, Collective: Closed} }
	receive := State{Valid: true, Seq: 9, Collective: plugin.Recv}
	rejection := func(seq, since uint64) executor.Rejection {
		return executor.Rejection{Valid: true, Seq: seq, Since: since, Text: "all_reduce: count -1 is negative"}
	}
	const now, before = "rank 2 refused its all_reduce: count -1 is negative",
		"rank 2 had refused its call #5, all_reduce: count -1 is negative"
	for name, test := range map[string]struct {
		rejection     executor.Rejection
		mine, theirs  State
		refused, past string
	}{
		"none":                                 {executor.Rejection{}, sum(5), sum(4), "", ""},
		"of this call":                         {rejection(5, 0), sum(5), sum(4), now, ""},
		"of the first call":                    {rejection(1, 0), sum(1), State{}, now, ""},
		"of this call, whose record was there": {rejection(5, 0), sum(5), sum(5), now, ""},
		"of an earlier call":                   {rejection(5, 0), sum(8), sum(4), now, ""},
		"of a later call":                      {rejection(6, 0), sum(5), sum(5), "", ""},
		"made again":                           {rejection(5, 1), sum(5), sum(5), "", before},
		"made again, and more":                 {rejection(5, 3), sum(8), sum(7), "", before},
		"closed after it":                      {rejection(5, 1), sum(5), closed(5), now, before},
		"closed later":                         {rejection(5, 2), sum(6), closed(6), "", before},
		"of no collective, behind":             {rejection(0, 0), sum(5), sum(4), now, ""},
		"of no collective, done":               {rejection(0, 0), sum(5), sum(5), "", ""},
		"waited for in a message":              {rejection(0, 0), receive, sum(9), now, ""},
		"waited for in no operation":           {rejection(0, 0), State{}, sum(9), now, ""},
	} {
		if text := rejected(2, test.rejection, test.mine, test.theirs); text != test.refused {
			t.Errorf("%s: %q, want %q", name, text, test.refused)
		}
		if text := rejectedBefore(2, test.rejection, test.mine); text != test.past {
			t.Errorf("%s, before: %q, want %q", name, text, test.past)
		}
	}
}

// A rank that could not make its engine words errors without one.
func TestErrorsWithoutAnEngine(t *testing.T) {
	o := Observer{Rank: 1, World: 2, Label: "world"}
	err := o.WrapError("init", plugin.Errorf(plugin.PeerDied, "rank 0 died"))
	if err == nil || err.Error() != "init on rank 1: rank 0 died" {
		t.Errorf("the error is %v", err)
	}
}
