package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cmd/shunt/internal/launch"
)

// A report may be as long as the plans of many ranks are.
func TestLongReport(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var report string
	require.NoError(t, askRanks(ctx, "long", nil, launch.Job{World: 1, Label: "test"}, &report, io.Discard))
	require.Len(t, report, longReport)
}

const longReport = 40 << 20

func init() {
	tasks["long"] = func(_ context.Context, _ []byte, report io.Writer) error {
		return json.NewEncoder(report).Encode(strings.Repeat("x", longReport))
	}
}
