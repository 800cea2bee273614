// Package watch looks after operations in flight: the flight recorder of the
// last ones, the clock that notices stalls, and the verdict on what two ranks
// are doing when one waits for the other.
//
// It decides and remembers; it neither talks to peers nor stops anything,
// which is the communicator's part.
package watch

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Entry is one operation in the flight recorder.
type Entry struct {
	Seq        uint64            `json:"seq"`
	Collective plugin.Collective `json:"-"`
	Name       string            `json:"collective"`
	DType      string            `json:"dtype"`
	Op         string            `json:"op,omitempty"`
	Count      int64             `json:"count"`
	Root       int               `json:"root"`
	Begin      time.Duration     `json:"begin_ns"` // since the recorder was made
	End        time.Duration     `json:"end_ns"`   // 0: still running
	Code       string            `json:"code,omitempty"`
}

// entry is Entry as it is kept: no strings, so that recording allocates nothing.
type entry struct {
	seq        uint64
	collective plugin.Collective
	dtype      plugin.DType
	op         plugin.Op
	root       int32
	code       plugin.Code
	count      int64
	begin, end time.Duration
}

// Recorder remembers the last operations of one communicator. Its lock is held
// for a few instructions, and by Entries for one copy of the ring.
type Recorder struct {
	mu      sync.Mutex
	start   time.Time
	ring    []entry
	seq     uint64
	failure string
}

// NewRecorder remembers the last n operations, at least one.
func NewRecorder(n int) *Recorder {
	return &Recorder{start: time.Now(), ring: make([]entry, max(n, 1))}
}

// Begin records that operation seq has started.
func (r *Recorder) Begin(seq uint64, collective plugin.Collective, dtype plugin.DType, op plugin.Op, count int64, root int) {
	now := time.Since(r.start)
	r.mu.Lock()
	r.seq = seq
	r.ring[seq%uint64(len(r.ring))] = entry{
		seq: seq, collective: collective, dtype: dtype, op: op, count: count, root: int32(root), begin: now,
	}
	r.mu.Unlock()
}

// End records how operation seq ended.
func (r *Recorder) End(seq uint64, err error) {
	now := time.Since(r.start)
	r.mu.Lock()
	if e := &r.ring[seq%uint64(len(r.ring))]; e.seq == seq {
		e.end = now
		if err != nil {
			e.code = plugin.CodeOf(err)
		}
	}
	r.mu.Unlock()
}

// Fail records why the communicator failed; the first reason is kept.
func (r *Recorder) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == "" {
		r.failure = err.Error()
	}
}

// Seq is the number of the latest operation.
func (r *Recorder) Seq() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq
}

// Entries are the remembered operations, oldest first.
func (r *Recorder) Entries() []Entry {
	r.mu.Lock()
	ring, seq := append([]entry(nil), r.ring...), r.seq
	r.mu.Unlock()
	var entries []Entry
	n := uint64(len(ring))
	for i := uint64(0); i < n; i++ {
		e := ring[(seq+1+i)%n]
		if e.seq == 0 || e.seq > seq || e.seq+n <= seq {
			continue
		}
		out := Entry{
			Seq: e.seq, Collective: e.collective, Name: e.collective.String(), DType: e.dtype.String(),
			Count: e.count, Root: int(e.root), Begin: e.begin, End: e.end,
		}
		if e.collective.Reduces() {
			out.Op = e.op.String()
		}
		if e.end != 0 {
			out.Code = e.code.String()
		}
		entries = append(entries, out)
	}
	return entries
}

// WriteJSON writes the record of one communicator as one JSON object.
func (r *Recorder) WriteJSON(w io.Writer, communicator string, rank, world int) error {
	r.mu.Lock()
	failure, started := r.failure, r.start
	r.mu.Unlock()
	return json.NewEncoder(w).Encode(struct {
		Communicator string    `json:"communicator"`
		Rank         int       `json:"rank"`
		World        int       `json:"world"`
		Started      time.Time `json:"started"`
		Failure      string    `json:"failure,omitempty"`
		Operations   []Entry   `json:"operations"`
	}{communicator, rank, world, started, failure, r.Entries()})
}
