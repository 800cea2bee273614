package diagnosis

import (
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// Late watches for a rank that has called fewer collectives than this one. It belongs to one goroutine.
type Late struct {
	rank   int
	called uint64
	since  time.Time
	looked time.Time
}

// Look returns the end of a communicator whose work on the GPU waits for a rank that will not come: one that has closed
// the communicator; and, where the work is of a transport's own library (engine), one that has called nothing for as
// long as a call may take. Our kernels have a deadline themselves; such a library's have none. idle says whether
// nothing is left on the GPU.
func (l *Late) Look(o *Observer, flights *Flights, engine bool, idle func() bool, now time.Time) *plugin.Error {
	// A process that was stopped, most often with the others, looks late; that time does not count.
	if stopped := now.Sub(l.looked); !l.looked.IsZero() && stopped > time.Second {
		l.since = l.since.Add(stopped)
	}
	l.looked = now
	behind, closed := o.behind(engine)
	if behind < 0 {
		*l = Late{rank: -1, looked: now}
		return nil
	}
	if called := o.State(behind).Collectives(); l.rank != behind || l.called != called || l.since.IsZero() {
		*l = Late{behind, called, now, now}
		return nil
	}
	if !closed && now.Sub(l.since) < o.Timeout() || idle() || o.Failure.Reason() != nil {
		return nil
	}
	reason := o.PeerTimeout(behind, "")
	if closed {
		reason = o.Deserted(behind)
	}
	reason.Message += flights.Awaiting(o, behind)
	return reason
}

// behind returns a rank that has called fewer collectives than this one, and whether it has closed the communicator;
// -1: none. Ranks of this host that may yet call them count if open is true; those of others tell of calls late.
func (o *Observer) behind(open bool) (rank int, closed bool) {
	own, found := o.State(o.Rank).Collectives(), -1
	for rank := range o.World {
		switch {
		case rank == o.Rank:
		case o.hasLeft(rank):
			return rank, true
		case open && found < 0 && o.Topology.SameHost(o.Rank, rank) && o.State(rank).Collectives() < own:
			found = rank
		}
	}
	return found, false
}

// hasLeft reports whether a rank has closed the communicator without a collective that this rank has called or, on this
// host, without a message that this rank receives. What the rank did not begin is not on its way, whatever carries it.
func (o *Observer) hasLeft(rank int) bool {
	theirs := o.State(rank)
	return theirs.HasClosed() && (theirs.Collectives() < o.State(o.Rank).Collectives() ||
		(o.Topology.SameHost(o.Rank, rank) && o.Engine.Unsent(rank)))
}

// oneHost reports whether all ranks are on one host, where nothing that a rank has sent is still on its way.
func (o *Observer) oneHost() bool { return len(o.Topology.Hosts()) == 1 }

// sendsNoMore reports whether a rank has closed the communicator, so that what this rank waits for and does not have
// yet will not come.
func (o *Observer) sendsNoMore(rank int) bool {
	return o.hasLeft(rank) || (o.oneHost() && o.State(rank).HasClosed())
}
