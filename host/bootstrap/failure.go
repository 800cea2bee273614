package bootstrap

import (
	"fmt"
	"slices"

	"github.com/shunt-ccl/shunt/plugin"
)

// Failure reports the end of a rank, or of a group.
type Failure struct {
	Rank  int    // of the session: the one that died, gave up or aborted
	PID   int    // its process
	Host  string // its host's name
	Group string // key of the group that it aborted; "" for the whole job
	Err   *plugin.Error
}

// Failures delivers, in order, what becomes of other ranks: their deaths (code PeerDied), their giving up and their
// aborting a group. It is closed by Close. Nothing is lost if it is not read.
func (s *Session) Failures() <-chan Failure { return s.failures }

// Fail tells every rank that this one gives up. Collectives with this rank in
// them fail with the reason on all ranks, and every rank gets a Failure.
func (s *Session) Fail(reason *plugin.Error) {
	reason = s.owned(reason)
	s.out.Lock()
	s.mu.Lock()
	if s.gaveUp == nil {
		s.gaveUp = reason
	}
	s.mu.Unlock()
	said := s.say(&message{Kind: msgFail, Group: groupJob, Err: reason})
	s.out.Unlock()
	lastWord(said)
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

// storeProcess returns the store's process, with the lowest of its ranks, or -1.
func (s *Session) storeProcess() Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store.Rank >= len(s.members) {
		return s.store.as(-1)
	}
	return s.store
}

// ofStore returns the ranks of the store's process.
func (s *Session) ofStore() (ranks []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank := range s.members {
		if s.withStore(rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// withStore reports whether a rank is of the store's process, as far as that is known. The caller holds mu.
func (s *Session) withStore(rank int) bool {
	return rank == s.store.Rank || (rank != s.rank && s.contacts[rank].process == s.process)
}

// event records the fate of a rank. The store sends it before any reply that depends
// on it. News that is known, from this store or an earlier one, is not delivered
// again.
func (s *Session) event(m *message) {
	if m.Rank >= len(s.members) {
		s.logger.Error("rendezvous: news of an unknown rank", "rank", m.Rank)
		return
	}
	who := s.members[m.Rank]
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.states[m.Rank]
	if m.State != Alive && known == Alive {
		s.setState(m.Rank, m.State, m.Err)
	}
	if m.State == Left && m.Err == nil {
		return
	}
	if m.Key == "" && known != Alive {
		return
	}
	if m.Key != "" {
		for _, g := range s.groups {
			if g.key != m.Key {
				continue
			}
			if g.failed != nil && g.failed.Rank == m.Err.Rank && g.failed.Message == m.Err.Message {
				return
			}
			if g.failed == nil {
				g.failed = m.Err
			}
		}
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

// lost records that the store is gone. The process that ran it died with it, so
// that is reported as the death of its ranks.
func (s *Session) lost(why string) (reason *plugin.Error) {
	store := s.storeProcess()
	died := func(who Member, role string) *plugin.Error {
		if s.givenUp != nil {
			return rankError(plugin.PeerDied, who.Rank, "%v%s has given up rank %d: %s", who, role, s.rank, why)
		}
		return rankError(plugin.PeerDied, who.Rank, "%v%s died: %s", who, role, why)
	}
	reason = died(store, ", which runs the job's store,")
	s.logger.Info("rendezvous: store lost", "rank", s.rank, "reason", reason.Message)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store.Rank < 0 {
		s.push(Failure{Rank: -1, PID: s.store.PID, Host: s.store.Host, Err: reason})
	}
	for rank, who := range s.members {
		if s.states[rank] != Alive || !s.withStore(rank) {
			continue
		}
		its := reason
		if rank != s.store.Rank {
			its = died(who, "")
		}
		s.setState(rank, Dead, its)
		s.push(Failure{Rank: rank, PID: who.PID, Host: who.Host, Err: its})
	}
	s.givenUp = nil
	return reason
}

// bye records that the store has said goodbye: to a rank that leaves, or
// because the process that ran it leaves.
func (s *Session) bye() *plugin.Error {
	store := s.storeProcess()
	reason := rankError(plugin.Closed, store.Rank, "%v has ended the session", store)
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank := range s.members {
		if s.states[rank] == Alive && rank != s.rank && s.withStore(rank) {
			s.setState(rank, Left, nil)
		}
	}
	return reason
}

func (s *Session) closedReason() *plugin.Error {
	return rankError(plugin.Closed, s.rank, "the session of rank %d is closed", s.rank)
}

// deliver hands failures to their reader.
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

// endOf returns the reason why collectives with a rank fail: what it died of or gave up for,
// or, without a reason, that it has left.
func endOf(who Member, reason *plugin.Error) *plugin.Error {
	if reason != nil {
		return reason
	}
	return rankError(plugin.Closed, who.Rank, "%v has closed its session", who)
}

// numbered returns the end of a rank of a group as its own errors are, which number ranks by their place in it.
func numbered(end *plugin.Error, ranks []int, key string) *plugin.Error {
	place := slices.Index(ranks, end.Rank)
	switch place {
	case end.Rank:
		return end
	case -1: // it ended for what another rank did
		return &plugin.Error{Code: end.Code, Rank: -1, Message: end.Message, Cause: end}
	}
	return &plugin.Error{Code: end.Code, Rank: place, Cause: end,
		Message: fmt.Sprintf("rank %d of group %q is gone: %s", place, key, end.Message)}
}

// firstEnd returns the end of the first of the ranks that is not alive, or nil. A rank that died or gave up goes before
// one that has left, perhaps for that reason.
func firstEnd(ranks []int, of func(rank int) (Member, State, *plugin.Error)) (reason *plugin.Error) {
	for _, rank := range ranks {
		who, state, why := of(rank)
		if state == Alive || (reason != nil && why == nil) {
			continue
		}
		reason = endOf(who, why)
		if why != nil {
			return reason
		}
	}
	return reason
}
