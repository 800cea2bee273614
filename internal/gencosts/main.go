// Command gencosts writes host/selector/builtin.json, the costs that are built into
// programs, from bench/data/collectives.csv: what NCCL takes on the machine of the
// benchmarks. The estimates of our own transports are in their sources.
package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/shunt-ccl/shunt/host/selector"
	"github.com/shunt-ccl/shunt/plugin"
)

const (
	from = "bench/data/collectives.csv"
	to   = "host/selector/builtin.json"
	// smallest is the shortest message of which NCCL's time matters: shorter ones cost as much, several times what our
	// kernels take.
	smallest = 1 << 20
	// margin multiplies NCCL's times: NCCL is chosen where it is faster than our kernels by more than the
	// estimates of these are off, as it costs a second and hundreds of MB at its first call.
	margin = 1.03
)

// spread are the collectives of which one rank's message is a part of the buffer.
var spread = []plugin.Collective{plugin.AllGather, plugin.ReduceScatter, plugin.AllToAll}

// windowed are those for which NCCL has other kernels on memory that is registered as a window. Where the table has
// their times, NCCL's on plain memory are not known.
var windowed = []plugin.Collective{plugin.AllReduce, plugin.AllGather, plugin.ReduceScatter}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gencosts:", err)
		os.Exit(1)
	}
}

func run() error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	t := selector.Tuning{Comment: "H200 over NVLink, plain memory, float32 sum, NCCL 2.28.9; made by internal/gencosts of " + from}
	for i, row := range rows[1:] {
		if err := add(&t, rows[0], row); err != nil {
			return fmt.Errorf("%s, line %d: %w", from, i+2, err)
		}
	}
	return t.WriteFile(to)
}

// add enters one row of the table.
func add(t *selector.Tuning, names, row []string) error {
	cell := func(name string) string { return row[slices.Index(names, name)] }
	collective, err := plugin.ParseCollective(cell("collective"))
	if cell("collective") == "sendrecv" || collective == plugin.AllToAllV {
		return nil // groups of messages, and what ranks see differently: the estimate is as good
	}
	if err != nil {
		return err
	}
	world, err := strconv.Atoi(cell("world"))
	if err != nil {
		return err
	}
	bytes, err := strconv.ParseInt(cell("bytes"), 10, 64)
	if err != nil {
		return err
	}
	if slices.Contains(spread, collective) {
		bytes /= int64(world)
	}
	us, err := strconv.ParseFloat(cell("nccl_us"), 64)
	if err != nil || bytes < smallest || (slices.Contains(windowed, collective) && cell("nccl_form") != "plain") {
		return err
	}
	e := selector.Entry{Collective: collective.String(), Algorithm: "nccl/tuned", World: world, Hosts: 1, Memory: "cuda",
		Topology: "h200-nvlink", Mode: selector.Mode(cell("mode"))}
	i := slices.IndexFunc(t.Entries, func(o selector.Entry) bool {
		return o.Collective == e.Collective && o.World == e.World && o.Mode == e.Mode
	})
	if i < 0 {
		t.Entries, i = append(t.Entries, e), len(t.Entries)
	}
	us = math.Round(us*margin*100) / 100
	t.Entries[i].Points = append(t.Entries[i].Points, selector.Point{Bytes: bytes, Microseconds: us})
	return nil
}
