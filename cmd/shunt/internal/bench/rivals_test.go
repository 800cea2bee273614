package bench

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shunt-ccl/shunt/cuda"
	"github.com/shunt-ccl/shunt/plugin"
)

// Another communicator of Shunt's runs in turn with the first, with right
// results, in every kind of operation and mode.
func TestAgainstAnotherTransport(t *testing.T) {
	t.Setenv("SHUNT_HEARTBEAT", "1m")
	c := gpuConfig(2, plugin.Float32)
	c.Collectives, c.InPlace = []string{"all_reduce", "all_to_all_v", "sendrecv", "barrier"}, false
	c.Against, c.Busy = []string{"builtin:cudaipc"}, 30
	rows := onGPUs(t, c)
	require.Len(t, rows, 14)
	for _, r := range rows {
		require.Zero(t, r.Wrong())
		require.NotNil(t, r.Covered)
		p := r.Peer("builtin")
		require.NotNil(t, p, r.Collective)
		require.Positive(t, p.Microseconds)
		require.Equal(t, r.OutOfPlace.Iterations, p.Iterations)
		us, _ := r.Best()
		require.Zero(t, us, "only NCCL counts")
	}
}

// Shunt on symmetric memory runs in turn with Shunt on other memory, also where
// ranks have buffers of different sizes: the offsets are alike.
func TestOnSymmetricMemory(t *testing.T) {
	t.Setenv("SHUNT_HEARTBEAT", "1m")
	c := gpuConfig(3, plugin.Float32)
	c.Collectives, c.InPlace, c.Symmetric = []string{"all_gather", "all_to_all", "broadcast", "scatter", "gather_v"},
		false, true
	for _, r := range onGPUs(t, c) {
		require.Zero(t, r.Wrong())
		p := r.Peer(Symmetric)
		require.NotNil(t, p, r.Collective)
		require.Equal(t, min(r.OutOfPlace.Microseconds, p.Microseconds), r.Ours())
	}
}

func TestRivalsHaveNames(t *testing.T) {
	c := Config{Against: []string{NCCL, "process:/a/b", "builtin:cudaipc"}, Symmetric: true}
	require.Equal(t, []string{Symmetric, NCCL, NCCLWindow, "process", "builtin"}, c.Rivals())
	require.Equal(t, []string{NCCL, "process", "builtin"}, c.ratios())
	c = Config{Against: []string{"process:/a", "process:/b"}}
	require.Equal(t, []string{"process:/a", "process:/b"}, c.Rivals())
	valid := Config{World: 2, Min: 8, Max: 8, Factor: 2, DType: plugin.Float32, Memory: plugin.MemoryKindCuda}
	require.NoError(t, valid.check())
	for _, against := range [][]string{{"mpi"}, {NCCL, NCCL}} {
		c := valid
		c.Against = against
		require.ErrorIs(t, c.check(), plugin.InvalidArgument)
	}
	valid.Memory, valid.Symmetric = plugin.MemoryKindHost, true
	require.ErrorIs(t, valid.check(), plugin.InvalidArgument)
}

// The row's columns, the better of each side, and what failed.
func TestTableOfRivals(t *testing.T) {
	c := Config{World: 4, Memory: plugin.MemoryKindCuda, Against: []string{NCCL, "process:/p"}, Symmetric: true, Busy: 50,
		Min: 8, Max: 8, Factor: 2}
	timing := func(us float64, wrong int64) Timing { return Timing{Microseconds: us, P99: us + 1, Wrong: wrong} }
	ours, covered := timing(20, 0), 0.5
	row := Row{Collective: "all_gather", Bytes: 8, Algorithm: "a/b", OutOfPlace: &ours, Covered: &covered, Peers: []Peer{
		{Symmetric, timing(10, 0)}, {NCCL, timing(30, 0)}, {NCCLWindow, timing(25, 0)}, {"process", timing(21, 3)},
	}}
	us, name := row.Best()
	require.Equal(t, 25.0, us)
	require.Equal(t, NCCLWindow, name)
	require.Equal(t, 10.0, row.Ours())
	require.Equal(t, int64(3), row.Wrong())
	row.Peers[2].Wrong = 1
	us, name = row.Best()
	require.Equal(t, 30.0, us, "what is wrong does not count")
	require.Equal(t, NCCL, name)
	row.Peers[0].Wrong = 1
	require.Equal(t, 20.0, row.Ours(), "what is wrong does not count of Shunt either")
	wrong := timing(5, 1)
	row.OutOfPlace = &wrong
	require.Zero(t, row.Ours())
	row.Peers[0].Wrong = 0
	require.Equal(t, 10.0, row.Ours())
	row.OutOfPlace = &ours

	var page bytes.Buffer
	table := Table{To: &page, Config: c}
	table.Row(row)
	table.Failed("reduce", errors.Join(errors.New("shunt bench: rank 1 ended"),
		errors.New("bench: rank 1: out of luck\nmore")))
	table.End()
	text := page.String()
	require.Regexp(t, `p99 symmetric +nccl +window +process +ratio +ratio  algorithm`, text)
	require.Regexp(t, ` 21\.00 +10\.00 +30\.00 +wrong +wrong +3\.00 +1\.05  a/b\n`, text)
	require.Contains(t, text, "# only 50 % of these batches ran beside other work")
	require.Contains(t, text, "# reduce FAILED: bench: rank 1: out of luck\n")
	require.Contains(t, text, "# FAILED: reduce\n")
	require.Contains(t, text, "#wrong over all rows : 3 FAILED", "of Shunt's")
}

func TestTwinHasEveryPlace(t *testing.T) {
	c := Config{World: 2, Min: 8, Max: 64 << 10, Factor: 4, DType: plugin.Float32, Memory: plugin.MemoryKindCuda}
	d, _, _ := space1(t, &c)
	w := twin{device: d, at: [buffers]cuda.Ptr{sendBuffer: 1 << 40, recvBuffer: 2 << 40}}
	send, err := d.buffer(sendBuffer, 4096)
	require.NoError(t, err)
	recv, err := d.buffer(recvBuffer, 4096)
	require.NoError(t, err)
	k := w.move(slot{send: send.part(512, 100), recv: recv.part(1024, 8), before: recv.part(0, 1024)})
	require.Equal(t, cuda.Ptr(1<<40+512), k.send.pointer())
	require.Equal(t, int64(100), k.send.bytes)
	require.Equal(t, cuda.Ptr(2<<40+1024), k.recv.pointer())
	require.Equal(t, cuda.Ptr(2<<40), k.before.pointer())
	require.Equal(t, area{}, k.after)
}

func TestParts(t *testing.T) {
	c := Config{World: 4, Min: 8, Max: 1 << 30, Factor: 4, DType: plugin.Float32, Memory: plugin.MemoryKindCuda,
		Modes: []Mode{Graph, Eager}, Against: []string{NCCL},
		Collectives: strings.Split("all_reduce,all_gather,reduce_scatter,all_to_all,all_to_all_v,broadcast,reduce,sendrecv",
			",")}
	parts := c.Apart()
	require.Len(t, parts, 8)
	var all time.Duration
	for i, p := range parts {
		require.Equal(t, []string{c.Collectives[i]}, p.Collectives)
		require.Len(t, c.Collectives, 8)
		all += p.Estimate()
	}
	require.Greater(t, all, time.Minute)
	require.Less(t, all, 4*time.Minute)
	require.Len(t, (&Config{}).Apart(), len(Names()))
	require.Zero(t, (&Config{}).Estimate())
	// Eight bytes to 1 GiB, which is no power of four times eight.
	sizes := c.sizes()
	require.Equal(t, int64(1<<30), sizes[len(sizes)-1])
	require.Equal(t, int64(512<<20), sizes[len(sizes)-2])
}
