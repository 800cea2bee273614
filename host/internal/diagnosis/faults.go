package diagnosis

import (
	"fmt"

	"github.com/shunt-ccl/shunt/plugin"
)

// Fault returns the error of a kernel that has given up. kind and peer are those that it reported; compared returns the
// words that it compared, its own and the peer's. If the peer has called something else, that is the error.
func (o *Observer) Fault(kind plugin.Fault, peer int, compared func() (own, theirs [3]uint64),
	flights *Flights) *plugin.Error {
	switch kind {
	case plugin.FaultAborted:
		return &plugin.Error{Code: plugin.Aborted, Rank: o.Rank,
			Message: fmt.Sprintf("a kernel of rank %d was aborted", o.Rank)}
	case plugin.FaultAsymmetric:
		if reason := o.Conflict(); reason != nil { // a peer whose memory is not symmetric has reported other arguments
			return reason
		}
		own, theirs := compared()
		return o.asymmetric(peer, own, theirs)
	case plugin.FaultLength:
		if reason := o.Conflict(); reason != nil { // the peer's message may be another operation's
			return reason
		}
		if reason := o.Disagreement(); reason != nil {
			return reason
		}
		own, theirs := compared()
		return o.wrongBytes(peer, theirs[0], own[0])
	case plugin.FaultCall:
		if reason := o.Conflict(); reason != nil {
			return reason
		}
		if reason := o.Disagreement(); reason != nil { // which says more, of a call that was not replayed
			return reason
		}
		own, theirs := compared()
		return o.anotherCall(peer, plugin.CallWord(own[0]), plugin.CallWord(theirs[0]))
	case plugin.FaultCounts:
		own, theirs := compared()
		return o.invalidCount(peer, own, theirs)
	}
	reason := o.PeerTimeout(peer, "")
	reason.Message += flights.Awaiting(o, peer)
	return reason
}

// FaultOnceClosed is like Fault once the communicator is closed, when what its ranks say of themselves is gone.
func (o *Observer) FaultOnceClosed(kind plugin.Fault, peer int) *plugin.Error {
	code, what := plugin.Mismatch, fmt.Sprintf("gave up, fault %d", kind)
	switch kind {
	case plugin.FaultTimeout:
		code, what = plugin.Timeout, fmt.Sprintf("got no response from %s for %v", o.PeerName(peer), o.Timeout())
	case plugin.FaultAborted:
		code, what = plugin.Aborted, "was aborted"
	case plugin.FaultAsymmetric:
		what = "found the memory of " + o.PeerName(peer) + " at another offset"
	case plugin.FaultLength:
		what = "got a message of another length from " + o.PeerName(peer)
	case plugin.FaultCall:
		what = "met another call of " + o.PeerName(peer)
	case plugin.FaultCounts:
		code, what = plugin.InvalidArgument, "found invalid counts on the GPU"
	case plugin.FaultEngine:
		code, what = plugin.Internal, "failed in an engine"
	}
	reason := &plugin.Error{Code: code, Rank: o.Rank, Message: fmt.Sprintf(
		"rank %d closed the communicator while an operation was running, which %s", o.Rank, what)}
	if peer >= 0 && peer < o.World {
		reason.Rank = peer
	}
	return reason
}

// anotherCall returns the error of kernels of different calls that met: of eager calls that this rank's host does not
// remember, or of replays of different graphs.
func (o *Observer) anotherCall(peer int, own, theirs plugin.CallWord) *plugin.Error {
	reason := &plugin.Error{Code: plugin.Mismatch, Rank: o.Rank, Message: fmt.Sprintf(
		"ranks disagree: rank %d runs %v, rank %d %v; a graph of the one may differ from that of the other", o.Rank, own,
		peer, theirs)}
	if peer >= 0 && peer < o.World {
		reason.Rank = peer
	}
	return reason
}

// asymmetric returns the error of a kernel that found symmetric memory used at different offsets.
func (o *Observer) asymmetric(peer int, own, theirs [3]uint64) *plugin.Error {
	place := func(w [3]uint64) string {
		text := fmt.Sprintf("%d bytes at offset %d of symmetric range %d", w[2]&^plugin.InPlace, w[1], w[0])
		switch {
		case (own[2]^theirs[2])&plugin.InPlace == 0:
		case w[2]&plugin.InPlace != 0:
			text += ", in place"
		default:
			text += ", out of place"
		}
		return text
	}
	reason := &plugin.Error{Code: plugin.Mismatch, Rank: o.Rank, Message: fmt.Sprintf(
		"ranks disagree: rank %d receives into %s, rank %d into %s", o.Rank, place(own), peer, place(theirs))}
	if peer >= 0 && peer < o.World {
		reason.Rank = peer
	}
	return reason
}

// invalidCount words why a kernel of this rank rejected a count for a peer that it has read from device memory.
func (o *Observer) invalidCount(peer int, own, theirs [3]uint64) *plugin.Error {
	count, displ, room := int64(own[0]), int64(own[1]), int64(theirs[0])
	side := "send"
	if own[2] == 1 {
		side = "receive"
	}
	var text string
	switch {
	case own[2] == 2:
		text = fmt.Sprintf("send count %d of this rank to itself differs from receive count %d", count, room)
	case count < 0:
		text = fmt.Sprintf("%s count %d for rank %d is negative", side, count, peer)
	case displ < 0:
		text = fmt.Sprintf("%s displacement %d for rank %d is negative", side, displ, peer)
	default:
		text = fmt.Sprintf("%s count %d at displacement %d for rank %d reaches past the capacity of %d", side, count,
			displ, peer, room)
	}
	return &plugin.Error{Code: plugin.InvalidArgument, Rank: o.Rank,
		Message: fmt.Sprintf("counts in device memory on rank %d: %s", o.Rank, text)}
}
