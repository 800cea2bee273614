package diagnosis

import (
	"slices"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
)

// Flights is the flight recorder of operations on a GPU. Only who waits for its stream sees that an operation has ended,
// so it records when operations were enqueued.
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

// Begin enters an operation.
func (f *Flights) Begin(number uint64, call *call.Call) {
	if len(f.ring) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring[f.next] = executor.Flight{
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

// List is the recorded operations, oldest first.
func (f *Flights) List() []executor.Flight {
	f.mu.Lock()
	list := slices.Concat(f.ring[f.next:], f.ring[:f.next])
	f.mu.Unlock()
	return slices.DeleteFunc(list, func(f executor.Flight) bool { return f.Number == 0 })
}
