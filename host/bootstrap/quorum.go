package bootstrap

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shunt-ccl/shunt/internal/failpoint"
	"github.com/shunt-ccl/shunt/plugin"
)

// There must never be two worlds of one job, each of which believes the other
// dead. A store continues without a rank only where quorum allows it; else it folds,
// and the ranks that are with it end.

// whereabouts is a store's knowledge of a rank's process.
type whereabouts uint8

const (
	unaccounted whereabouts = iota // it may run, with or without a store of its own
	present                        // it is connected
	ended                          // its process has ended for certain, or it said goodbye
)

// quorum reports whether the ranks that are present may continue without the others: if all the others have ended; or
// if they are more than half of the world, or half of it with rank 0. The world counts as it began, because two stores
// may know of different deaths; two groups without a rank in common can never both be more than half of that.
func quorum(ranks []whereabouts) bool {
	count, missing := 0, 0
	for _, w := range ranks {
		switch w {
		case present:
			count++
		case unaccounted:
			missing++
		}
	}
	return missing == 0 || 2*count > len(ranks) || (2*count == len(ranks) && ranks[0] == present)
}

// proofTime is the longest time until the end of a process shows after its
// connections have closed.
const proofTime = time.Second

// census says where the ranks are, those that are lost or have ended by proof.
// The caller holds mu.
func (st *store) census() []whereabouts {
	list := make([]whereabouts, len(st.members))
	for rank, m := range st.members {
		switch {
		case m.conn != nil && !m.gone:
			list[rank] = present
		case m.state == Left, m.process.ended():
			list[rank] = ended
		}
	}
	return list
}

// confirmed returns a census without the ranks that have not responded since a round
// of questions: they may have another store by now. The caller holds mu.
func (st *store) confirmed(ranks []whereabouts, round uint64) []whereabouts {
	ranks = slices.Clone(ranks)
	for rank, m := range st.members {
		if ranks[rank] == present && !m.replied(round) {
			ranks[rank] = unaccounted
		}
	}
	return ranks
}

// replied reports whether a rank has been here since a round of questions. The
// caller holds the store's mu.
func (m *member) replied(round uint64) bool { return m.inProcess || m.round >= round }

// question asks all ranks whether they are here. The caller holds mu.
func (st *store) question() uint64 {
	st.round++
	fr := (&message{Kind: msgPing, Seq: st.round}).frame()
	for _, m := range st.members {
		if m.conn != nil && !m.gone && !m.inProcess {
			m.send(fr)
		}
	}
	return st.round
}

// pong records the reply of a rank. The caller holds mu.
func (st *store) pong(m *member, round uint64) {
	m.round = max(m.round, min(round, st.round))
	st.decide()
	for g := range st.allGroups() {
		g.recount()
	}
}

// decide buries the ranks that are lost, if the others may continue without them, and ends a succession that waits for
// no other rank. If they may not, there is a while for proof, and then the store folds. The caller holds mu.
func (st *store) decide() {
	if st.phase != running || (st.resuming == nil && !st.suspects()) {
		return
	}
	waits := st.resuming != nil && !st.resuming.late && st.awaitsRanks()
	if waits && !st.suspects() {
		return
	}
	ranks := st.census()
	if quorum(ranks) {
		st.proofBy = time.Time{}
		if slices.Contains(ranks, unaccounted) { // a majority, which is asked once for each loss
			if st.asked == 0 {
				st.asked = st.question()
			}
			if !quorum(st.confirmed(ranks, st.asked)) {
				return
			}
		}
		st.asked = 0
		for _, m := range st.members {
			if reason := m.suspicion; reason != nil {
				m.suspicion = nil
				st.bury(m, reason)
			}
		}
		st.resume()
		return
	}
	if waits {
		return
	}
	switch {
	case st.proofBy.IsZero():
		st.proofBy = time.Now().Add(proofTime)
	case time.Now().After(st.proofBy):
		st.fold(ranks)
		return
	}
	time.AfterFunc(5*time.Millisecond, func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		if !st.proofBy.IsZero() {
			st.decide()
		}
	})
}

// awaitsRanks reports whether a rank may still come over. The caller holds mu.
func (st *store) awaitsRanks() bool {
	for _, m := range st.members {
		if m.conn == nil && !m.gone {
			return true
		}
	}
	return false
}

// suspects reports whether a rank is lost that has not been declared dead. The
// caller holds mu.
func (st *store) suspects() bool {
	for _, m := range st.members {
		if m.suspicion != nil {
			return true
		}
	}
	return false
}

// fold ends a store that may not continue, and with it the ranks that it has. The
// caller holds mu.
func (st *store) fold(ranks []whereabouts) {
	var here, missing []int
	var why []string
	for rank, w := range ranks {
		m := st.members[rank]
		switch w {
		case present:
			here = append(here, rank)
		case unaccounted:
			missing = append(missing, rank)
			if m.suspicion != nil {
				why = append(why, m.suspicion.Message)
			} else if m.reason != nil {
				why = append(why, m.reason.Message)
			}
		}
	}
	reason := rankError(plugin.PeerDied, missing[0], "%s; %s of the job's %d may not go on without %s, which may still run: there is neither a majority nor proof of the end of %s",
		strings.Join(why, "; "), rankList(here), st.world, rankList(missing), rankList(missing))
	if len(here) > 0 { // a rank that closed while it took the store over is gone by now
		st.logger.Error("rendezvous: the job cannot go on", "reason", reason.Message)
	}
	for _, m := range st.members {
		if !m.gone {
			m.send((&message{Kind: msgRefuse, Err: reason}).frame())
			m.finish()
		}
	}
	st.stopLocked()
}

// askTime bounds the time that other ranks have to reply whether this rank still belongs
// to the job. A stopped process does not reply.
const askTime = 250 * time.Millisecond

var failCanvass = failpoint.New("rendezvous.canvass",
	"a rank that would run the job's store asks the others what has become of it")

// canvass asks the other ranks whether they still count this one. dead is the reason
// why they have declared it dead; elsewhere lists the ranks that have another store.
func (s *Session) canvass(ctx context.Context) (dead *plugin.Error, elsewhere []int) {
	for {
		began := time.Now()
		dead, elsewhere = s.canvassOnce(ctx)
		// A rank that was stopped meanwhile has not waited for the replies: it asks again.
		if dead != nil || ctx.Err() != nil || time.Since(began) < 2*askTime {
			return dead, elsewhere
		}
	}
}

func (s *Session) canvassOnce(ctx context.Context) (dead *plugin.Error, elsewhere []int) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	failCanvass.Hit()
	var mu sync.Mutex
	var asking sync.WaitGroup
	for rank, c := range s.contacts {
		if rank == s.rank || len(c.standby) == 0 || s.State(rank) == Left {
			continue
		}
		asking.Go(func() {
			reply := s.ask(ctx, rank, c.standby)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case reply == nil:
			case reply.retry:
				elsewhere = append(elsewhere, rank)
			case dead == nil:
				dead = reply.reason
				cancel()
			}
		})
	}
	asking.Wait()
	return dead, elsewhere
}

// ask asks one rank; nil if it does not reply, or knows nothing.
func (s *Session) ask(ctx context.Context, rank int, places []place) (reply *refused) {
	_ = reach(ctx, places, askTime, func(conn net.Conn) (bool, error) {
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		_, _, err := s.introduceAgain(conn, s.secret.successor(s.job, rank), true)
		stop()
		conn.Close()
		return err == nil || errors.As(err, &reply), err
	}) // what does not reply says nothing
	return reply
}
