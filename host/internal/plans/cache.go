package plans

import (
	"sync"

	"github.com/shunt-ccl/shunt/host/executor"
	"github.com/shunt-ccl/shunt/host/internal/call"
	"github.com/shunt-ccl/shunt/host/selector"
)

// prepared is one signature's choice and its loaded plans, candidate by
// candidate. What no size chooses has none, nor has what needs an exchange of bytes
// before the first call of a size that chooses it.
type prepared struct {
	choice   *selector.Choice
	programs []Program
}

func newPrepared(choice *selector.Choice) *prepared {
	return &prepared{choice, make([]Program, len(choice.Candidates()))}
}

func (p Program) loaded() bool { return p.Host != nil || p.Kernels != nil }

// Program is a loaded plan: one of the two, as the communicator's memory is.
type Program struct {
	Host            *executor.Program
	Kernels         *executor.DeviceProgram
	ComparesLengths bool   // of recv: it never ends with a message of another length
	Marked          bool   // its semaphores carry marks
	Base            uint32 // of its endpoint's regions
	Deferred        []int  // which of its endpoint's regions of role deferred it needs, counted among those
}

func (p Program) free() {
	p.Host.Free()
	p.Kernels.Free()
}

// cache keeps prepared plans by signature. It is bounded by the tables: at most two entries
// for each collective, dtype and op, as counts on the device are never symmetric.
type cache struct {
	mu     sync.Mutex // for Explain, which may run in another goroutine
	known  map[call.Signature]*prepared
	last   call.Signature // the latest, so that a repeated call skips the map
	latest *prepared
}

func (s *cache) lookup(key call.Signature) *prepared {
	if s.latest != nil && s.last == key {
		return s.latest
	}
	p := s.known[key]
	if p != nil {
		s.last, s.latest = key, p
	}
	return p
}

// find is lookup for any goroutine.
func (s *cache) find(key call.Signature) *prepared {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[key]
}

func (s *cache) store(key call.Signature, p *prepared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[call.Signature]*prepared{}
	}
	s.known[key] = p
}

// drop frees the plans of a signature.
func (s *cache) drop(key call.Signature) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[key].free()
	delete(s.known, key)
	s.latest = nil
}

func (s *cache) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.known {
		p.free()
	}
	s.known, s.latest = nil, nil
}

// unload frees some of the plans.
func (p *prepared) unload(list []int) {
	for _, i := range list {
		p.programs[i].free()
		p.programs[i] = Program{}
	}
}

func (p *prepared) free() {
	for _, program := range p.programs {
		program.free()
	}
	clear(p.programs)
}
