package diagnosis

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
)

// Flights is the flight recorder of operations on a GPU. Only a wait for its stream shows that an operation has
// ended, so it records when operations were enqueued.
type Flights struct {
	made time.Time

	mu   sync.Mutex // held for a copy of the ring at most
	ring []executor.Flight
	next int
}

// NewFlights makes a recorder of that many operations.
func NewFlights(n int) Flights {
	return Flights{made: time.Now(), ring: make([]executor.Flight, n)}
}

// Begin enters an operation and what it runs; seq is its number among the collectives, or that of the one before it.
func (f *Flights) Begin(number, seq uint64, call *call.Call, plan string) {
	if len(f.ring) == 0 {
		return
	}
	if call.Collective.PointToPoint() {
		seq = 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring[f.next] = executor.Flight{
		Seq: seq, Plan: plan,
		Number: number, Collective: call.Collective, DType: call.DType, Op: call.Op,
		Count: call.Count, Root: call.Root, Symmetric: call.Symmetric, OnDevice: call.OnDevice, Begin: time.Since(f.made),
	}
	f.next = (f.next + 1) % len(f.ring)
}

// Enqueued ends the entry made last.
func (f *Flights) Enqueued(number uint64, failed bool) {
	if len(f.ring) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	last := &f.ring[(f.next+len(f.ring)-1)%len(f.ring)]
	if last.Number == number {
		last.End, last.Failed, last.Enqueued = time.Since(f.made), failed, !failed
	}
}

// List returns the recorded operations, oldest first.
func (f *Flights) List() []executor.Flight {
	f.mu.Lock()
	list := slices.Concat(f.ring[f.next:], f.ring[:f.next])
	f.mu.Unlock()
	return slices.DeleteFunc(list, func(f executor.Flight) bool { return f.Number == 0 })
}

// Awaiting says, to be put behind a message, what this rank runs in the first collective that a peer has not called, or
// else in the last operation; "" if that is not recorded. A kernel reports for which rank it waits, not in which
// operation; the host knows no more than this.
func (f *Flights) Awaiting(o *Observer, peer int) string {
	list := f.List()
	latest := func(that func(*executor.Flight) bool) *executor.Flight {
		for i := range slices.Backward(list) {
			if !list[i].Failed && list[i].Plan != "" && that(&list[i]) {
				return &list[i]
			}
		}
		return nil
	}
	if peer >= 0 && peer < o.World && o.Topology.SameHost(o.Rank, peer) {
		called := o.State(peer).Collectives()
		if missed := latest(func(flight *executor.Flight) bool { return flight.Seq == called+1 }); missed != nil {
			return fmt.Sprintf("; rank %d has not called %s, in which rank %d runs %s", peer,
				Numbered(missed.Collective, missed.Seq), o.Rank, missed.Plan)
		}
	}
	if last := latest(func(*executor.Flight) bool { return true }); last != nil {
		return fmt.Sprintf("; rank %d enqueued %s last, in which it runs %s", o.Rank, Numbered(last.Collective, last.Seq),
			last.Plan)
	}
	return ""
}
