package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/report"
	"github.com/shunt-ccl/shunt/plugin"
)

func TestLastCall(t *testing.T) {
	made := func(number uint64, collective, state string) *report.Call {
		return &report.Call{Number: number, Collective: collective, State: state}
	}
	received := func(state string) *report.Call {
		call, peer := made(5, "recv", state), 3
		call.Peer = &peer
		return call
	}
	sum := State{Valid: true, Seq: 5, Collective: plugin.AllReduce, DType: plugin.Float32, Count: 8}
	// ended is of the collective before
	receive := State{Valid: true, Ended: true, Seq: 5, Collective: plugin.Recv, DType: plugin.Float32, Count: 8, Root: 3}
	done := sum
	done.Ended = true
	entry := func(page State, state string) []report.Entry {
		return []report.Entry{{Number: 2, State: "running"},
			{Number: 9, Collective: page.Collective.String(), DType: page.DType.String(), Count: page.Count, State: state}}
	}
	for name, test := range map[string]struct {
		page       State
		operations []report.Entry
		want       *report.Call
	}{
		"nothing":                  {State{}, entry(sum, report.Ended), nil},
		"in a collective":          {sum, entry(sum, "running"), made(5, "all_reduce", report.Called)},
		"failed in a collective":   {sum, entry(sum, "failed"), made(5, "all_reduce", report.Called)},
		"called, not begun":        {sum, entry(receive, report.Ended), made(5, "all_reduce", report.Called)},
		"done, no records":         {done, nil, made(5, "all_reduce", report.Ended)},
		"enqueued":                 {sum, entry(sum, report.Enqueued), made(5, "all_reduce", report.Enqueued)},
		"in a message":             {receive, entry(receive, "running"), received(report.Called)},
		"in a message, no records": {receive, nil, received(report.Called)},
		"a message is done":        {receive, entry(receive, report.Ended), received(report.Ended)},
		"another message has come": {receive, entry(State{Collective: plugin.Recv, DType: plugin.Float32, Count: 9},
			report.Ended), received(report.Called)},
		"what was called is nonsense": {State{Valid: true, Seq: 1, Collective: 77}, nil,
			made(1, plugin.Collective(77).String(), report.Called)},
	} {
		require.Equal(t, test.want, LastCall(test.page, test.operations), name)
	}
}
