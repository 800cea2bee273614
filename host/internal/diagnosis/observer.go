package diagnosis

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/topology"
	"github.com/shunt-ccl/shunt/plugin"
)

// Observer is one rank's view of a communicator: it reads what the ranks say of themselves in their control pages. Its
// methods may be called from any goroutine.
type Observer struct {
	Rank, World int
	Label       string // names the communicator in messages
	OnDevice    bool   // the communicator is on CUDA memory
	Logger      *slog.Logger
	Engine      *executor.Engine
	Topology    *topology.Topology
	Failure     Failure
	Making      atomic.Bool // the program does not have the communicator yet

	timeout atomic.Int64
}

// Timeout returns the longest time that an operation may take; 0: any.
func (o *Observer) Timeout() time.Duration { return time.Duration(o.timeout.Load()) }

// SetTimeout sets what Timeout returns.
func (o *Observer) SetTimeout(limit time.Duration) { o.timeout.Store(int64(limit)) }

// State returns the content of a rank's control page.
func (o *Observer) State(rank int) State { return stateOf(o.Engine.PeerRecord(rank)) }

// calls words what a rank has called, as far as it is known here: a rank of another host tells of its calls when they
// rest, and not of those that it has made since.
func (o *Observer) calls(rank int, s State) string {
	switch {
	case s.HasClosed() || o.Topology.SameHost(o.Rank, rank):
		return s.String()
	case !s.Valid:
		return "has told of no call yet"
	}
	return "last told that it " + s.String()
}

// PeerName names a rank of the communicator for messages.
func (o *Observer) PeerName(rank int) string {
	if rank < 0 || rank >= o.World {
		return "a peer"
	}
	place := o.Topology.Places[rank]
	return fmt.Sprintf("peer rank %d (pid %d, host %s)", rank, place.PID, place.Host)
}

// Deadline bounds a call that talks to peers over the rendezvous store.
func (o *Observer) Deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := o.Timeout()
	return context.WithTimeoutCause(ctx, limit, plugin.Errorf(plugin.Timeout, "the ranks did not agree within %v", limit))
}

// PeerTimeout returns the timeout of a rank that waited for peer, as all ranks report it; where names the step,
// if it is known. A peer that is no rank: none is waited for, as far as the step says.
func (o *Observer) PeerTimeout(peer int, where string) *plugin.Error {
	return o.peerTimeout(peer, where, o.Timeout())
}

// peerTimeout is PeerTimeout of what had a deadline, which may have changed since.
func (o *Observer) peerTimeout(peer int, where string, deadline time.Duration) *plugin.Error {
	known := peer >= 0 && peer < o.World
	message := fmt.Sprintf("rank %d named no peer that it waited for, and did not end within %v", o.Rank, deadline)
	if known {
		message = fmt.Sprintf("rank %d got no response from %s for %v", o.Rank, o.PeerName(peer), deadline)
	}
	reason := &plugin.Error{Code: plugin.Timeout, Rank: o.Rank, Message: message}
	if where != "" {
		reason.Message += " " + where
	}
	if known {
		reason.Rank = peer
		theirs, ours := o.State(peer), o.State(o.Rank)
		reason.Message += fmt.Sprintf("; that rank %s, rank %d %s", o.calls(peer, theirs), o.Rank, ours)
		if ours.sends(peer) && theirs.sends(o.Rank) {
			reason.Message += "; where both send first, each waits for the other's recv: calls of one group run together"
		}
		if what := WaitsForNetwork(o.Rank, ours, peer, theirs); what != "" && !o.Topology.SameHost(peer, o.Rank) {
			reason.Message += fmt.Sprintf(", so %s waits for the network: %s", what, o.network(peer))
		}
	}
	reason.Message += o.rejections(absence)
	if known && o.OnDevice && peer != o.Rank && o.Topology.SameProcess(o.Rank, peer) {
		reason.Message += fmt.Sprintf("; rank %d is in the same process, where cudaFree of a GPU's memory (torch.cuda.empty_cache frees that of all GPUs) blocks its thread until that GPU's kernels end, which may wait for what the thread calls next", peer)
	}
	return reason
}

// MemoryLate returns the timeout of a rank that waited for memory of a peer, which the peer's process makes whatever
// its callers do; asked says that the process has taken the request.
func (o *Observer) MemoryLate(peer int, asked bool) error {
	if !asked {
		return o.PeerTimeout(peer, "while its process took no request; it may be stopped")
	}
	return o.PeerTimeout(peer, "while its process was making the memory; cudaFree there (torch.cuda.empty_cache) delays that until its GPU's kernels end, which may wait for other ranks")
}

// stateOf reads a control page's record, which a peer may have filled with anything.
func stateOf(r executor.Record) State {
	return State{
		Valid: r.Valid, Ended: r.Ended, Seq: r.Seq, Collective: r.Collective, DType: r.DType, Op: r.Op, Count: r.Count,
		Root:      int(r.Root),
		Symmetric: r.Symmetric, DeviceCounts: r.DeviceCounts,
	}
}
