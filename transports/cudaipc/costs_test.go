package cudaipc

import (
	"encoding/csv"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// What was measured on 8 GPUs is what the costs of 4 say of 8, but for short messages, of which each peer's first word
// takes 0.1 µs more.
func TestCostsOfFourPredictEight(t *testing.T) {
	f, err := os.Open("../../bench/data/collectives_8.csv")
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	cell := make(map[string]string)
	compared := 0
	for _, row := range rows[1:] {
		for i, name := range rows[0] {
			cell[name] = row[i]
		}
		c, err := plugin.ParseCollective(cell["collective"])
		if err != nil || c == plugin.AllToAllV || cell["mode"] != "graph" { // of messages that differ
			continue
		}
		bytes, err := strconv.ParseInt(cell["bytes"], 10, 64)
		require.NoError(t, err)
		measured, err := strconv.ParseFloat(cell["shunt_us"], 64)
		require.NoError(t, err)
		if c != plugin.AllReduce && c != plugin.Reduce && c != plugin.Broadcast {
			bytes /= 8
		}
		r := plugin.Request{Collective: c, DType: plugin.Float32, World: 8, Hosts: 1, Memory: plugin.MemoryKindCuda,
			NVLink: true}
		for _, a := range (Transport{}).Supports(r).Algorithms {
			if a.Name != cell["algorithm"] {
				continue
			}
			compared++
			estimate := a.Latency + float64(bytes)/a.Bandwidth
			require.InEpsilon(t, measured, estimate, 0.35, "%s of %s bytes by %s", c, cell["bytes"], a.Name)
			if estimate > 10 { // of long messages
				require.InEpsilon(t, measured, estimate, 0.25, "%s of %s bytes by %s", c, cell["bytes"], a.Name)
			}
		}
	}
	require.Greater(t, compared, 25)
}
