package call

import "github.com/shunt-ccl/shunt/host/executor"

// Sequence numbers the operations of a communicator, and hashes every collective together with all before it: ranks
// whose hashes differ have called different collectives.
type Sequence struct {
	Number      uint64        // of operations, for messages and records
	Collectives uint64        // of collective ones alone, which all ranks count alike
	Hash        uint64        // of those
	Mark        executor.Mark // of the operation that runs; 0: it is none of those that ranks compare
	previous    uint64        // the hash before the latest collective
}

// Next numbers the operation that begins, which was identified.
func (s *Sequence) Next(call *Call, world int) {
	s.Number++
	s.Mark = 0
	if call.Collective.PointToPoint() {
		return
	}
	s.Collectives++
	if world > 1 {
		s.previous, s.Hash = s.Hash, call.Identity.On(s.Hash)
		s.Mark = executor.MarkOf(s.Collectives, s.Hash)
	}
}

// TakeBack takes the number back from the latest collective, which has not begun after all, so that this rank counts as
// the others do.
func (s *Sequence) TakeBack() {
	s.Collectives--
	s.Hash = s.previous
}
