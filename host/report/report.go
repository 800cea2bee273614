package report

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/shunt-ccl/shunt/plugin"
)

// Report is a communicator's record as it is written for people and tools.
type Report struct {
	Head
	Operations []Entry `json:"operations"` // oldest first
}

// Head identifies the rank and its communicator in a report.
type Head struct {
	Communicator string `json:"communicator"`
	Job          string `json:"job"` // tells jobs apart; equal on all ranks
	Rank         int    `json:"rank"`
	World        int    `json:"world"`
	PID          int    `json:"pid"`
	Host         string `json:"host"`
	Last         *Call  `json:"last,omitempty"`    // nil: it has called nothing
	Code         string `json:"code,omitempty"`    // of the failure
	Failure      string `json:"failure,omitempty"` // its reason; "": the communicator works
}

// Call is the call that a rank made last, numbered so that ranks can be compared.
type Call struct {
	Number     uint64 `json:"number"` // of collectives so far, this call included if it is one
	Collective string `json:"collective"`
	Peer       *int   `json:"peer,omitempty"` // of a message: the other rank
	State      string `json:"state"`          // Called, Ended or Enqueued
}

// NewCall returns a call of that number; root is the other rank where it is a message.
func NewCall(number uint64, collective plugin.Collective, root int, state string) *Call {
	c := &Call{Number: number, Collective: collective.String(), State: state}
	if collective.PointToPoint() {
		c.Peer = &root
	}
	return c
}

// Message words a message with another rank, such as "send to rank 2".
func Message(collective plugin.Collective, peer int) string {
	way := "to"
	switch collective {
	case plugin.Recv, plugin.Get:
		way = "from"
	case plugin.Wait:
		way = "for"
	}
	return fmt.Sprintf("%s %s rank %d", collective, way, peer)
}

// How far a call has come.
const (
	Called   = "called"   // it has not ended, or not well
	Ended    = "ended"    // well
	Enqueued = "enqueued" // put into a stream of a GPU, where its end is not seen
)

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// Bounds of what is accepted in a report.
const (
	MaxReport = 64 << 20 // bytes; some 300,000 operations
	maxLabel  = 4096
	maxWord   = 256
)

// ReadHead reads a report that WriteJSON wrote, perhaps in another version of
// Shunt, which may have more fields. Operations are not kept. What is read comes
// from another process: the error has code Protocol.
func ReadHead(r io.Reader) (Head, error) {
	var h Head
	text, err := io.ReadAll(io.LimitReader(r, MaxReport+1))
	switch {
	case err != nil:
		return h, plugin.Errorf(plugin.System, "%w", err)
	case len(text) > MaxReport:
		return h, plugin.Errorf(plugin.Protocol, "it is longer than %d bytes", MaxReport)
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return Head{}, plugin.Errorf(plugin.Protocol, "not a report: %w", err)
	}
	if problem := h.problem(); problem != "" {
		return Head{}, plugin.Errorf(plugin.Protocol, "not a report: %s", problem)
	}
	return h, nil
}

// problem says what makes a head impossible, or "".
func (h *Head) problem() string {
	switch {
	case h.Communicator == "" || len(h.Communicator) > maxLabel:
		return "no communicator is named"
	case h.World < 1 || h.World > plugin.MaxWorld:
		return "its world is not one"
	case h.Rank < 0 || h.Rank >= h.World:
		return "its rank is not of its world"
	case len(h.Job) > maxWord || len(h.Host) > maxWord || len(h.Code) > maxWord || h.PID < 0:
		return "job, host, process or code make no sense"
	case (h.Code == "") != (h.Failure == ""):
		return "code and failure do not go together"
	case h.Last == nil:
		return ""
	case h.Last.Collective == "" || len(h.Last.Collective) > maxWord:
		return "its last call has no name"
	case h.Last.State != Called && h.Last.State != Ended && h.Last.State != Enqueued:
		return "its last call is in no state"
	case h.Last.Peer != nil && (*h.Last.Peer < 0 || *h.Last.Peer >= h.World):
		return "its last call is with no rank of its world"
	}
	return ""
}
