package bootstrap

import (
	"fmt"

	"github.com/shunt-ccl/shunt/plugin"
)

// Failure is what became of a rank, or of a group.
type Failure struct {
	Rank  int    // of the session: who died, gave up or aborted
	PID   int    // its process
	Host  string // its host's name
	Group string // key of the group that it aborted; "" for the whole job
	Err   *plugin.Error
}

// Failures delivers, in order, what becomes of other ranks: their deaths
// (code PeerDied), their giving up and their aborting a group. It is closed by
// Close. Nothing is lost if nobody reads.
func (s *Session) Failures() <-chan Failure { return s.failures }

// Fail tells every rank that this one gives up. Collectives with this rank in
// them fail with the reason on all ranks; everybody gets a Failure.
func (s *Session) Fail(reason *plugin.Error) {
	s.send(&message{Kind: msgFail, Group: groupJob, Err: s.owned(reason)})
}

// owned makes sure that a reason names the rank it began on.
func (s *Session) owned(reason *plugin.Error) *plugin.Error {
	if reason == nil {
		return rankError(plugin.Aborted, s.rank, "rank %d gave up", s.rank)
	}
	if reason.Rank >= -1 && reason.Rank < plugin.MaxWorld && reason.Code != plugin.OK {
		return reason
	}
	return rankError(plugin.Aborted, s.rank, "%s", reason.Message)
}

func (s *Session) storeRank() int {
	if s.store.Rank >= len(s.members) {
		return -1
	}
	return s.store.Rank
}

func (s *Session) storeName() string {
	if s.storeRank() < 0 {
		return fmt.Sprintf("the job's store (pid %d on host %s)", s.store.PID, s.store.Host)
	}
	return fmt.Sprintf("rank %d (pid %d on host %s)", s.store.Rank, s.store.PID, s.store.Host)
}

// event records what became of a rank, before anything that depends on it is
// answered, because the store sends it first.
func (s *Session) event(m *message) {
	if m.Rank >= len(s.members) {
		s.logger.Error("rendezvous: news of an unknown rank", "rank", m.Rank)
		return
	}
	who := s.members[m.Rank]
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.State != s.states[m.Rank] {
		s.setState(m.Rank, m.State, m.Err)
	}
	if m.State == Left && m.Err == nil {
		return
	}
	s.push(Failure{Rank: m.Rank, PID: who.PID, Host: who.Host, Group: m.Key, Err: m.Err})
}

// setState records what a rank has become. The caller holds mu.
func (s *Session) setState(rank int, state State, reason *plugin.Error) {
	s.states[rank], s.reasons[rank] = state, reason
	close(s.changed)
	s.changed = make(chan struct{})
}

// push queues a failure for delivery. The caller holds mu.
func (s *Session) push(f Failure) {
	s.pending = append(s.pending, f)
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// lost ends the session because the store is gone. The process that ran it
// died with it, so that is reported as the death of its rank.
func (s *Session) lost(why string) {
	s.mu.Lock()
	closed, ended := s.closed, s.end != nil
	s.mu.Unlock()
	if closed || ended {
		s.finish(rankError(plugin.Closed, s.rank, "the session of rank %d is closed", s.rank))
		return
	}
	reason := rankError(plugin.PeerDied, s.storeRank(), "%s, which runs the job's store, died: %s", s.storeName(), why)
	s.logger.Warn("rendezvous: store lost", "rank", s.rank, "reason", reason.Message)
	s.mu.Lock()
	if rank := s.storeRank(); rank >= 0 {
		s.setState(rank, Dead, reason)
	}
	s.push(Failure{Rank: s.storeRank(), PID: s.store.PID, Host: s.store.Host, Err: reason})
	s.mu.Unlock()
	s.finish(reason)
}

// deliver hands failures to whoever reads them.
func (s *Session) deliver() {
	defer s.work.Done()
	defer close(s.failures)
	for {
		s.mu.Lock()
		queue := s.pending
		s.pending = nil
		s.mu.Unlock()
		for _, f := range queue {
			select {
			case s.failures <- f:
			case <-s.closing:
				return
			}
		}
		select {
		case <-s.arrived:
		case <-s.closing:
			return
		}
	}
}
