package plans

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/host/internal/diagnosis"
	"github.com/shunt-ccl/shunt/plugin"
)

// told is a group in which every rank contributes this.
type told [][]byte

func (all told) Agree(context.Context, string, error) error { return nil }

func (all told) AllGather(context.Context, string, []byte) ([][]byte, error) { return all, nil }

// All ranks return the same of several errors, as some errors make Shrink try again.
func TestLeaveOutReturnsTheSameErrorEverywhere(t *testing.T) {
	var group told
	for _, absent := range []map[string]absence{nil, {"c": {plugin.Timeout, "c is late"},
		"b": {plugin.PluginDied, "b died"}, "d": {plugin.Internal, "d fails"}}} {
		data, err := json.Marshal(absences{true, absent})
		require.NoError(t, err)
		group = append(group, data)
	}
	for range 50 {
		pl := &Planner{Observer: &diagnosis.Observer{Logger: slog.New(slog.DiscardHandler)}, Group: group,
			Absent: map[string]string{}}
		require.EqualError(t, pl.LeaveOut(t.Context(), "t", nil, true), "rank 1: b died")
	}
}
