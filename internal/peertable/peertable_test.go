package peertable

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	written := Results{Machine: "a processor", CPUs: 2, Reference: "ours", Against: []string{"theirs"}, Rows: []Row{
		{2, "all_reduce", 8, map[string]float64{"ours": 2, "theirs": 1.00001}, map[string]float64{"theirs": 0.5}},
		{2, "all_reduce", 2048, map[string]float64{"ours": 11, "theirs": 88}, map[string]float64{"theirs": 8}},
		{2, "broadcast", 8, map[string]float64{"ours": 400, "theirs": 1200}, map[string]float64{"theirs": 3}},
		{2, "broadcast", 32, map[string]float64{"ours": 1}, nil},
	}}
	require.NoError(t, written.Write(path))
	read, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, 1.0, read.Rows[0].Microseconds["theirs"])
	var out strings.Builder
	read.Tables(&out)
	require.Equal(t, `2 ranks, theirs over ours: ratio of times (µs: theirs / ours); above 1 ours is faster

| bytes | all_reduce | broadcast |
|---:|---:|---:|
| 8 | 0.50 (1.00 / 2.00) | 3.00 (1200 / 400) |
| 2K | 8.00 (88.0 / 11.0) |  |
| geometric mean | **2.00** | **3.00** |
| lowest | 0.50 | 3.00 |

`, out.String())
}
