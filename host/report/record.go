// Package report holds what a rank remembers of its operations, as people and tools read it: the entries of the flight
// recorder in words, and the report that a failed communicator leaves behind as a file.
//
// What lives here: the form of a report, writing one and reading one. What may not: verdicts about what ranks do, which
// are host/internal/diagnosis's, and recording, which is the executor's.
package report

import (
	"time"

	"github.com/shunt-ccl/shunt/host/executor"
)

// Entry is one operation of the flight recorder, in words.
type Entry struct {
	Number     uint64        `json:"number"`
	Collective string        `json:"collective"`
	DType      string        `json:"dtype"`
	Op         string        `json:"op,omitempty"`
	Count      int64         `json:"count"`
	Root       int           `json:"root"`
	Symmetric  bool          `json:"symmetric,omitempty"`
	OnDevice   bool          `json:"counts_on_device,omitempty"`
	Begin      time.Duration `json:"begin_ns"`       // since the communicator was made
	End        time.Duration `json:"end_ns"`         // 0: had not ended
	Plan       string        `json:"plan,omitempty"` // on a GPU: the algorithm and the kernels that ran
	// running, ended or failed; on a GPU enqueued, as its end there is not seen
	State string `json:"state"`
}

// Entries words what the executor recorded.
func Entries(flights []executor.Flight) []Entry {
	entries := make([]Entry, len(flights))
	for i, f := range flights {
		e := Entry{
			Number: f.Number, Collective: f.Collective.String(), DType: f.DType.String(), Count: f.Count, Root: f.Root,
			Symmetric: f.Symmetric, OnDevice: f.OnDevice,
			Begin: f.Begin, End: f.End, Plan: f.Plan, State: "running",
		}
		if f.Collective.Reduces() {
			e.Op = f.Op.String()
		}
		switch {
		case f.Failed:
			e.State = "failed"
		case f.Enqueued:
			e.State = Enqueued
		case f.End != 0:
			e.State = Ended
		}
		entries[i] = e
	}
	return entries
}
