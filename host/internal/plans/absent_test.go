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
