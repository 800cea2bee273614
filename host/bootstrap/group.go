package bootstrap

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shunt-ccl/shunt/host/internal/round"
	"github.com/shunt-ccl/shunt/plugin"
)

// Group is some ranks of a session, in an order of their own, and the
// collectives among them. A collective is matched by its tag: every member
// calls it with the same tag; collectives with different tags may be called in
// any order and at the same time.
//
// A collective fails on every member alike: if a member dies, gives up, closes
// the group or lets its context end, all members get the same error. After a
// death, giving up or abort every collective but Survivors fails. Where the
// store is lost within moments of other deaths, the error of one member may
// name another dead rank than that of the next: a successor cannot know which
// of them came first, and a member does not wait for it much longer than a second.
type Group struct {
	session *Session
	id      uint32
	key     string
	ranks   []int
	rank    int
	close   sync.Once
	timeout atomic.Int64

	// guarded by session.mu, for a successor of the store
	failed   *plugin.Error // by this rank or another
	heard    uint64        // number of the latest result
	recent   []recent      // the latest results
	failures []recent      // the latest collectives that have failed
	tells    *message      // the last message of Tell

	told map[int][]byte // news of other members; guarded by session.mu
}

// Group makes a group of the given ranks, which must include this one. All members call it with the same key and ranks.
// A key is used once in the life of a session, except by groups that have no rank in common. It sends one message and
// waits for no other rank.
func (s *Session) Group(key string, ranks []int) (*Group, error) {
	if len(key) > maxKey {
		return nil, plugin.Errorf(plugin.InvalidArgument, "the key of a group has %d characters, want at most %d", len(key),
			maxKey)
	}
	if err := checkRanks(ranks, len(s.members), s.rank); err != nil {
		return nil, err
	}
	g := &Group{session: s, key: key, ranks: slices.Clone(ranks), rank: slices.Index(ranks, s.rank)}
	g.SetTimeout(s.timeout)
	s.out.Lock()
	defer s.out.Unlock()
	s.mu.Lock()
	g.id = s.nextID
	s.nextID++
	var end *plugin.Error
	if s.end != nil {
		end = g.sessionEnd()
	} else if len(s.groups) >= maxGroups {
		end = rankError(plugin.OutOfMemory, g.rank, "rank %d is in %d groups at once and cannot make group %q", g.rank,
			maxGroups, key)
	}
	if end == nil {
		s.groups[g.id] = g
	}
	s.mu.Unlock()
	if end != nil {
		return nil, end
	}
	s.say(&message{Kind: msgGroup, Group: g.id, Key: key, Ranks: g.ranks})
	return g, nil
}

// Key returns the key the group was made with.
func (g *Group) Key() string { return g.key }

// Rank returns this rank's number within the group.
func (g *Group) Rank() int { return g.rank }

// World returns the number of members.
func (g *Group) World() int { return len(g.ranks) }

// Ranks returns the members as ranks of the session. The slice is the caller's.
func (g *Group) Ranks() []int { return slices.Clone(g.ranks) }

// Member returns the process of a member, by its number within the group.
func (g *Group) Member(rank int) Member { return g.session.members[g.ranks[rank]] }

// Session returns the session that the group belongs to.
func (g *Group) Session() *Session { return g.session }

// Timeout returns the deadline of collectives whose context has none: the session's, until SetTimeout.
func (g *Group) Timeout() time.Duration { return time.Duration(g.timeout.Load()) }

// SetTimeout sets what Timeout returns.
func (g *Group) SetTimeout(limit time.Duration) { g.timeout.Store(int64(limit)) }

// Secret derives 32 bytes that only members of the job can know, for one
// purpose, which label names.
func (g *Group) Secret(label string) []byte {
	return g.session.secret.derive("group", g.key, label)
}

func (g *Group) call(ctx context.Context, op opKind, root int, tag string, data []byte) ([]byte, error) {
	return g.session.call(ctx, g, op, root, tag, data)
}

// AllGather returns every member's data, in order, to every member. All data
// together may take up 8 MiB. Without a deadline in the context, the group's
// timeout counts.
func (g *Group) AllGather(ctx context.Context, tag string, data []byte) ([][]byte, error) {
	payload, err := g.call(ctx, opGather, 0, tag, data)
	if err != nil {
		return nil, err
	}
	return decodeParts(payload, len(g.ranks))
}

// Broadcast returns root's data to every member; the others' is ignored. root
// is a number within the group.
func (g *Group) Broadcast(ctx context.Context, tag string, root int, data []byte) ([]byte, error) {
	if root < 0 || root >= len(g.ranks) {
		return nil, plugin.Errorf(plugin.InvalidArgument, "broadcast %q: root %d is out of range: the group has %d ranks",
			tag, root, len(g.ranks))
	}
	if root != g.rank {
		data = nil
	}
	return g.call(ctx, opRoot, root, tag, data)
}

// Barrier returns after every member has called it.
func (g *Group) Barrier(ctx context.Context, tag string) error {
	_, err := g.call(ctx, opFirst, 0, tag, nil)
	return err
}

// Agree returns nil if every member brings nil, and otherwise the same
// *plugin.Error to all: that of the lowest rank that brings one, with the rank
// named in front of its message. Rank in it is the number within the group.
func (g *Group) Agree(ctx context.Context, tag string, mine error) error {
	payload, err := g.call(ctx, opFirst, 0, tag, round.Say(g.rank, mine))
	if err != nil {
		return err
	}
	return round.Heard(payload, g.rank, mine)
}

// Survivors waits until every member that is alive and has not closed the group has
// called it, and returns their numbers within the group, the same on all. It works
// after deaths and aborts, so that the remaining ranks can agree on the new
// membership.
func (g *Group) Survivors(ctx context.Context, tag string) ([]int, error) {
	ranks, _, err := g.GatherSurvivors(ctx, tag, nil)
	return ranks, err
}

// GatherSurvivors is Survivors, and returns the data of each of these ranks, in their order.
func (g *Group) GatherSurvivors(ctx context.Context, tag string, data []byte) (ranks []int, all [][]byte, err error) {
	payload, err := g.call(ctx, opSurvivors, 0, tag, append([]byte{1}, data...))
	if err != nil {
		return nil, nil, err
	}
	parts, err := decodeParts(payload, len(g.ranks))
	if err != nil {
		return nil, nil, plugin.Errorf(plugin.Protocol, "survivors %q on rank %d: %w", tag, g.rank, err)
	}
	for i, part := range parts {
		if len(part) > 0 {
			ranks, all = append(ranks, i), append(all, part[1:])
		}
	}
	return ranks, all, nil
}

// Fail aborts the group: every other member gets a Failure with the group's
// key, and every collective of the group but Survivors fails with the reason.
// A group that this rank has closed is not its to abort.
func (g *Group) Fail(reason *plugin.Error) {
	s := g.session
	reason = s.owned(reason)
	s.out.Lock()
	s.mu.Lock()
	open := s.groups[g.id] == g
	if open && g.failed == nil {
		g.failed = reason
	}
	s.mu.Unlock()
	var said <-chan struct{}
	if open {
		said = s.say(&message{Kind: msgFail, Group: g.id, Err: reason})
	}
	s.out.Unlock()
	lastWord(said)
}

// WhileAlive derives a context that also ends when a member dies, gives up or
// leaves, or when the session ends; its cause is an error that says so. Use it
// for whatever waits for a member other than by a collective.
func (g *Group) WhileAlive(ctx context.Context) (context.Context, context.CancelFunc) {
	return g.whileAlive(ctx, g.ranks, false)
}

// WhileMemberRuns is like WhileAlive for what waits for one member, whatever becomes of the others. One that has left
// is no reason to end: its process, and what it had begun, may continue.
func (g *Group) WhileMemberRuns(ctx context.Context, rank int) (context.Context, context.CancelFunc) {
	return g.whileAlive(ctx, g.ranks[rank:rank+1], true)
}

func (g *Group) whileAlive(ctx context.Context, ranks []int, left bool) (context.Context, context.CancelFunc) {
	s := g.session
	ctx, cancel := context.WithCancelCause(ctx)
	// changed is closed when this may no longer be so; nil: it is not so.
	alive := func() (changed <-chan struct{}) {
		s.mu.Lock()
		defer s.mu.Unlock()
		reason := firstEnd(ranks, func(rank int) (Member, State, *plugin.Error) {
			state := s.states[rank]
			if left && state == Left {
				state = Alive
			}
			return s.members[rank], state, s.reasons[rank]
		})
		switch {
		case s.end != nil:
			cancel(g.sessionEnd())
		case reason != nil:
			cancel(numbered(reason, g.ranks, g.key))
		default:
			return s.changed
		}
		return nil
	}
	// What is known already ends it before the caller begins.
	if changed := alive(); changed != nil {
		go func() {
			for ; changed != nil; changed = alive() {
				select {
				case <-changed:
				case <-s.ended:
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// Close forgets the group. Members that still use it get an error, and so do calls of
// this rank that are under way. It waits for no other rank.
func (g *Group) Close() error {
	g.close.Do(func() {
		s := g.session
		s.out.Lock()
		s.mu.Lock()
		delete(s.groups, g.id)
		for k, w := range s.waiters {
			if k.group == g.id {
				delete(s.waiters, k)
				w.reply <- &message{Err: g.closedError()}
			}
		}
		if s.standby != nil {
			if len(s.parted) == maxParted {
				s.parted = slices.Delete(s.parted, 0, 1)
			}
			s.parted = append(s.parted, g)
		}
		s.mu.Unlock()
		said := s.say(&message{Kind: msgUngroup, Group: g.id})
		s.out.Unlock()
		lastWord(said)
	})
	return nil
}
