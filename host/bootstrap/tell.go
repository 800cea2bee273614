package bootstrap

import (
	"slices"

	"github.com/shunt-ccl/shunt/plugin"
)

// What ranks tell each other takes no part in what is agreed on: it is news, of which only the latest counts. A rank
// tells it again when the store is lost.

// maxUntold limits the bytes that may already wait for a rank when more is queued for it. A rank that reads slowly
// misses news.
const maxUntold = 1 << 20

// Tell sends the other members up to MaxTold bytes, in place of what it has told them before. It does not wait for
// them, and a member that reads slowly misses it.
func (g *Group) Tell(data []byte) error {
	if len(data) > MaxTold {
		return plugin.Errorf(plugin.InvalidArgument, "the ranks of a group cannot be told %d bytes, want at most %d",
			len(data), MaxTold)
	}
	s, m := g.session, &message{Kind: msgTell, Group: g.id, Data: slices.Clone(data)}
	s.out.Lock()
	s.mu.Lock()
	open := s.groups[g.id] == g
	if open {
		g.tells = m
	}
	s.mu.Unlock()
	var said <-chan struct{}
	if open {
		said = s.say(m)
	}
	s.out.Unlock()
	lastWord(said)
	return nil
}

// Told returns what other members have told since the last call, by their numbers within the group.
func (g *Group) Told() map[int][]byte {
	g.session.mu.Lock()
	defer g.session.mu.Unlock()
	news := g.told
	g.told = nil
	return news
}

// hear keeps what a member has told this rank.
func (s *Session) hear(m *message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[m.Group]
	if g == nil || m.Rank >= len(g.ranks) || m.Rank == g.rank {
		return
	}
	if g.told == nil {
		g.told = map[int][]byte{}
	}
	g.told[m.Rank] = m.Data
}

// pass hands on what a rank tells the others of a group. The caller holds mu.
func (st *store) pass(m *member, msg *message) {
	g := m.groups[msg.Group]
	if g == nil { // it has closed it, or never made it
		return
	}
	if st.resuming != nil { // the others may still be to come
		st.resuming.told[toldBy{m, msg.Group}] = msg
		return
	}
	for _, rank := range g.ranks {
		if other := st.members[rank]; other != m && other.hasRoom() {
			g.tell(rank, &message{Kind: msgTell, Rank: g.index[m.who.Rank], Data: msg.Data})
		}
	}
}

// hasRoom reports whether news may wait for a rank besides what it has not read.
func (m *member) hasRoom() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.backlog < maxUntold
}
