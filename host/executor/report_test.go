package executor

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/shunt-ccl/shunt/plugin"
)

// abroad returns engines of two ranks on different hosts, each with a page that stands for the other.
func abroad(t *testing.T) (a, b *Engine) {
	t.Helper()
	var engines [2]*Engine
	for rank := range engines {
		e, err := NewEngine(rank, 2)
		must(t, err)
		t.Cleanup(e.Close)
		for page := range engines {
			must(t, e.SetControl(page, memory(mapped(t, memfd(t, ControlBytes), ControlBytes))))
		}
		engines[rank] = e
	}
	return engines[0], engines[1]
}

// called has a rank say that it called collectives, the last one of a count.
func called(e *Engine, seq, hash uint64, collective plugin.Collective, count int64) {
	e.Record(seq, seq, uint32(collective), uint32(plugin.Float32), uint32(plugin.OpSum), count, 0)
	e.Mark(MarkOf(seq, hash))
	e.NoteCall()
	e.Announce()
}

// A report says on another host what the page itself says on this one.
func TestAReportSaysWhatThePageDoes(t *testing.T) {
	a, b := abroad(t)
	called(a, 1, 100, plugin.AllReduce, 5)
	called(b, 1, 100, plugin.AllReduce, 5)
	called(a, 2, 200, plugin.AllReduce, 7)
	called(b, 2, 300, plugin.AllGather, 8)
	b.RejectCall(3, "broadcast: root 9 is out of range")
	assert.False(t, a.PeerRecord(1).Valid)
	_, found := a.Disagreement(1, 2)
	assert.False(t, found, "before any report")

	a.SetReport(1, b.Report())
	assert.Equal(t, b.PeerRecord(1), a.PeerRecord(1))
	assert.Equal(t, Rejection{Valid: true, Seq: 3, Text: "broadcast: root 9 is out of range"}, a.PeerRejection(1))
	d, found := a.Disagreement(1, 2)
	assert.True(t, found)
	assert.Equal(t, [2]int64{7, 8}, [2]int64{d.Mine.Count, d.Theirs.Count})
	assert.Equal(t, plugin.AllGather, d.Theirs.Collective)
	assert.True(t, a.Contradicts(1, MarkOf(2, 200)))

	before := a.Report()
	a.SetReport(0, b.Report()) // a rank writes its own page itself
	assert.Equal(t, before, a.Report())
	for _, report := range [][]byte{nil, make([]byte, ReportBytes-1), make([]byte, ReportBytes+1)} {
		a.SetReport(1, report) // of another version of Shunt
	}
	a.SetReport(2, before)
	a.SetReport(-1, before)
	assert.Equal(t, b.PeerRecord(1), a.PeerRecord(1))
	a.Close()
	assert.Nil(t, a.Report())
	a.SetReport(1, before)
}

// A reader that reads while reports come sees one of them. Each report is of later calls than the one before: what
// tells that a page has changed never comes back.
func TestReportsAreReadWhole(t *testing.T) {
	a, b := abroad(t)
	letter := func(seq uint64) string { return string(rune('a' + seq%26)) }
	length := func(seq uint64) int { return 100 + 50*int(seq%2) }
	var latest atomic.Uint64
	report := func() {
		seq := latest.Load() + 1
		called(a, seq, 5, plugin.Barrier, 0)
		called(b, seq, 1000, plugin.AllReduce, int64(seq)*11)
		b.RejectCall(seq, strings.Repeat(letter(seq), length(seq)))
		a.SetReport(1, b.Report())
		latest.Store(seq)
	}
	report()
	var done sync.WaitGroup
	defer done.Wait() // before the pages go, also after a failure
	stop := make(chan struct{})
	defer close(stop)
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				report()
			}
		}
	})
	for began := time.Now(); time.Since(began) < time.Second; {
		if r := a.PeerRecord(1); r.Valid && r.Count != int64(r.Seq)*11 {
			t.Fatalf("a mixed record: %+v", r)
		}
		if r := a.PeerRejection(1); r.Valid && (len(r.Text) != length(r.Seq) || strings.Trim(r.Text, letter(r.Seq)) != "") {
			t.Fatalf("a mixed rejection: %+v", r)
		}
		if d, found := a.Disagreement(1, latest.Load()); found && d.Theirs.Count != int64(d.Theirs.Seq)*11 {
			t.Fatalf("a mixed call: %+v", d)
		}
	}
}

// A report may hold anything: it misleads, and no more.
func TestAHostileReportOnlyMisleads(t *testing.T) {
	a, _ := abroad(t)
	called(a, 1, 100, plugin.AllReduce, 5)
	random := rand.New(rand.NewPCG(3, 4))
	report := make([]byte, ReportBytes)
	for range 2000 {
		for i := range report {
			report[i] = byte(random.Uint32())
		}
		a.SetReport(1, report)
		assert.LessOrEqual(t, len(a.PeerRejection(1).Text), maxRejection)
		assert.Equal(t, printable(a.PeerRejection(1).Text), a.PeerRejection(1).Text)
		a.PeerRecord(1)
		a.Disagreement(1, 1)
		a.Contradicts(1, MarkOf(1, 100))
	}
}
