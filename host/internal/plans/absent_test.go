package plans

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/plugin"
)

// All ranks return the same of several errors, as some errors make Shrink try again.
func TestLeaveOutReturnsTheSameErrorEverywhere(t *testing.T) {
	var all [][]byte
	for _, absent := range []map[string]absence{nil, {"c": {plugin.Timeout, "c is late"},
		"b": {plugin.PluginDied, "b died"}, "d": {plugin.Internal, "d fails"}}} {
		data, err := json.Marshal(absences{true, absent})
		require.NoError(t, err)
		all = append(all, data)
	}
	for range 50 {
		pl := &Planner{Observer: &diagnosis.Observer{Logger: slog.New(slog.DiscardHandler)},
			Absent: map[string]string{}}
		require.EqualError(t, pl.LeaveOut(nil, true).Hear(all), "rank 1: b died")
	}
}

// A rank that has waited in vain says less than any other error, whatever its number: the error of another rank goes
// first.
func TestLeaveOutPrefersTheCause(t *testing.T) {
	for code, late := range map[plugin.Code]bool{plugin.Timeout: true, plugin.PeerDied: true, plugin.PluginDied: false,
		plugin.Internal: false, plugin.Device: false} {
		var all [][]byte
		for _, absent := range []map[string]absence{{"a": {code, "a failed first"}}, {"a": {plugin.System, "a fails"}}} {
			data, err := json.Marshal(absences{true, absent})
			require.NoError(t, err)
			all = append(all, data)
		}
		pl := &Planner{Observer: &diagnosis.Observer{Logger: slog.New(slog.DiscardHandler)},
			Absent: map[string]string{}}
		want := "rank 0: a failed first"
		if late {
			want = "rank 1: a fails"
		}
		require.EqualError(t, pl.LeaveOut(nil, true).Hear(all), want, code)
		require.EqualError(t, pl.LeaveOut(nil, true).Hear(all[:1]), "rank 0: a failed first", code)
	}
}
