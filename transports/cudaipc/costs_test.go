package cudaipc

import (
	"encoding/csv"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/plugin"
)

// What was measured on 8 GPUs is what the costs of 4 say of 8, but for short messages, of which each peer's first word
// takes 0.1 µs more.
func TestCostsOfFourPredictEight(t *testing.T) {
	compared := 0
	for _, cell := range readRows(t, "../../bench/data/collectives_8.csv") {
		c, err := plugin.ParseCollective(cell["collective"])
		if err != nil || c == plugin.AllToAllV || cell["mode"] != "graph" { // of messages that differ
			continue
		}
		bytes, measured := number(t, cell["bytes"]), number(t, cell["shunt_us"])
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
			estimate := a.Latency + bytes/a.Bandwidth
			require.InEpsilon(t, measured, estimate, 0.35, "%s of %s bytes by %s", c, cell["bytes"], a.Name)
			if estimate > 10 { // of long messages
				require.InEpsilon(t, measured, estimate, 0.25, "%s of %s bytes by %s", c, cell["bytes"], a.Name)
			}
		}
	}
	require.Greater(t, compared, 25)
}

// Among this transport's algorithms the costs choose the fastest, but for 5 %, at sizes between those that they were
// made of and on other GPUs: H100.
func TestCostsChooseTheFastest(t *testing.T) {
	type call struct {
		collective, world, bytes string
	}
	took := make(map[call]map[string]float64)
	for _, row := range readRows(t, "../../bench/data/algorithms_h100.csv") {
		// Copy engines write into symmetric memory alone, and a send alone is half of what was measured.
		name, ours := strings.CutPrefix(row["algorithm"], "cudaipc/")
		if !ours || strings.HasPrefix(name, "ce") || row["mode"] != "graph" || row["collective"] == "send" {
			continue
		}
		c := call{row["collective"], row["world"], row["bytes"]}
		if took[c] == nil {
			took[c] = make(map[string]float64)
		}
		took[c][name] = number(t, row["us"])
	}
	compared := 0
	for c, times := range took {
		collective, err := plugin.ParseCollective(c.collective)
		require.NoError(t, err)
		bytes := number(t, c.bytes)
		r := plugin.Request{Collective: collective, DType: plugin.Float32, World: int(number(t, c.world)), Hosts: 1,
			Memory: plugin.MemoryKindCuda, NVLink: true}
		chosen, least, best := "", math.Inf(1), math.Inf(1)
		for _, a := range (Transport{}).Supports(r).Algorithms {
			if int64(bytes) < a.MinBytes || (a.MaxBytes > 0 && int64(bytes) > a.MaxBytes) {
				continue
			}
			if cost := a.Latency + bytes/a.Bandwidth; cost < least {
				chosen, least = a.Name, cost
			}
			if us, measured := times[a.Name]; measured {
				best = min(best, us)
			}
		}
		require.Contains(t, times, chosen, "%+v", c)
		require.LessOrEqual(t, times[chosen], 1.05*best, "%+v: %s takes %.2f µs, the best %.2f", c, chosen, times[chosen],
			best)
		if len(times) > 1 {
			compared++
		}
	}
	require.Greater(t, compared, 60)
}

// readRows reads a table of the benchmarks: its rows by the names of the columns.
func readRows(t *testing.T, path string) []map[string]string {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	lines, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	rows := make([]map[string]string, len(lines)-1)
	for i, line := range lines[1:] {
		rows[i] = make(map[string]string)
		for j, name := range lines[0] {
			rows[i][name] = line[j]
		}
	}
	return rows
}

func number(t *testing.T, text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return v
}
