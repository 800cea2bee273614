package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/shunt-ccl/shunt/plugin"
)

// When the store is lost with its process, the remaining ranks look for a successor: the lowest of them, at the address
// where it has listened since it joined. Every rank sends the new store its messages to the old one that had no reply
// yet, and the outcomes of collectives that it received last, so collectives continue as if nothing had happened,
// except those with a dead rank in them.

// replyTime returns the time that a rank which may be alive has to reply.
func (s *Session) replyTime() time.Duration { return max(s.silence/4, time.Second) }

// mostReplyTimes bounds the search for a successor: this many ranks in turn may let this one wait, where all those of a
// host without power count as one.
const mostReplyTimes = 8

// standings returns this rank's knowledge of all ranks.
func (s *Session) standings() []standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]standing, len(s.states))
	for rank := range list {
		list[rank] = standing{s.states[rank], s.reasons[rank]}
	}
	if s.gaveUp != nil {
		list[s.rank] = standing{GaveUp, s.gaveUp}
	}
	return list
}

// errAlone ends the search for a successor.
var errAlone = plugin.Errorf(plugin.Aborted, "there is no other place for the job's store")

// succeed finds or becomes the successor of the lost store, and returns the
// connection to it.
func (s *Session) succeed() (*frameConn, error) {
	if s.standby == nil {
		return nil, errAlone
	}
	ctx, cancel := withinRunning(context.Background(), mostReplyTimes*s.replyTime())
	defer cancel()
	s.seek(true)
	defer s.seek(false)
	go func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	s.standby.seek()
	hopeless := time.AfterFunc(hopelessAfter, s.failHopeless)
	defer hopeless.Stop()
	var errs ofPlaces
	skip, silent := map[int]bool{}, silentHosts{}
	for ctx.Err() == nil {
		rank := s.heir(skip)
		if rank == s.rank {
			// This rank may be late: stopped for a while, say, and given up.
			dead, elsewhere := s.canvass(ctx)
			if dead != nil {
				return nil, &refused{reason: dead}
			}
			for _, rank := range elsewhere {
				link, err := s.follow(ctx, rank, silentHosts{}) // it has just replied
				if err == nil {
					return link, nil
				}
				// That store counts without this rank, but does not know yet whether it may continue.
				if refusal, is := errors.AsType[*refused](err); is && !refusal.retry {
					return nil, refusal
				}
			}
			if ctx.Err() != nil {
				break // this rank has closed meanwhile
			}
			link, err := s.hostStore(ctx)
			if err != nil {
				return nil, append(errs, err)
			}
			return link, nil
		}
		link, err := s.follow(ctx, rank, silent)
		if err == nil {
			return link, nil
		}
		errs = append(errs, fmt.Errorf("rank %d: %w", rank, err))
		refusal, is := errors.AsType[*refused](err)
		switch {
		case !is:
			skip[rank] = true
		case !refusal.retry:
			return nil, refusal
		default: // it knows a successor that this rank has passed over
			errs = errs[:0]
			clear(skip)
			clear(silent)
			pause(ctx, s.heartbeat)
		}
	}
	return nil, append(errs, errAlone)
}

// seek notes that this rank begins to look for a successor of the store, or has ended to.
func (s *Session) seek(begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeking, s.found = begun, time.Now()
}

// settling reports whether collectives may be waiting for the store's successor: to be found, or to learn of the ranks
// that it waits for.
func (s *Session) settling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seeking || time.Since(s.found) < s.replyTime()
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// heir returns the lowest rank that is not known to be gone and can run the store.
func (s *Session) heir(skip map[int]bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank, state := range s.states {
		if rank == s.rank || ((state == Alive || state == GaveUp) && !skip[rank] && len(s.contacts[rank].standby) > 0) {
			return rank
		}
	}
	return s.rank
}

// hostStore runs the store here.
func (s *Session) hostStore(ctx context.Context) (*frameConn, error) {
	root := newSuccessor(s, s.standby.secret)
	root.attach() // cannot fail, as no other process knows the address
	s.logger.Info("rendezvous: taking the store over", "rank", s.rank, "from", s.storeProcess().String())
	s.standby.host(root.store)
	conn := s.standby.connect()
	if conn == nil {
		root.detach()
		return nil, errAlone
	}
	s.root = root
	return s.resumeAt(ctx, conn, s.standby.secret)
}

// follow asks a rank to be taken in to the store that it runs, or will run. It passes over the addresses in silent, and
// adds those that nothing replies from.
func (s *Session) follow(ctx context.Context, rank int, silent silentHosts) (*frameConn, error) {
	key := s.secret.successor(s.job, rank)
	if local := lookupStandby(key.id()); local != nil {
		conn := local.connect()
		if conn == nil {
			return nil, errAlone
		}
		link, err := s.resumeAt(ctx, conn, key)
		if err != nil {
			return nil, err
		}
		local.mu.Lock()
		root := local.store.root
		local.mu.Unlock()
		if !root.attach() {
			link.Close()
			return nil, errAlone
		}
		s.root = root
		return link, nil
	}
	var link *frameConn
	err := reach(ctx, silent.without(s.contacts[rank].standby), s.replyTime(), func(conn net.Conn) (bool, error) {
		watch := watchProcess(s.contacts[rank].process, func() { conn.Close() })
		defer watch.stop()
		var err error
		link, err = s.resumeAt(ctx, conn, key)
		_, is := errors.AsType[*refused](err)
		return err == nil || is, err
	})
	silent.note(err)
	return link, err
}

// refused is the reply of a rank that does not run the store.
type refused struct {
	reason *plugin.Error
	retry  bool
}

func (r *refused) Error() string { return r.reason.Error() }

// resumeAt introduces this rank to a successor and, once welcome, repeats what the lost store has received. It takes
// the connection over.
func (s *Session) resumeAt(ctx context.Context, conn net.Conn, key secret) (*frameConn, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	welcome, f, err := s.introduceAgain(conn, key, false)
	if err == nil && len(welcome.Members) != len(s.members) {
		err = plugin.Errorf(plugin.Protocol, "a welcome is to %d ranks, want %d", len(welcome.Members), len(s.members))
	}
	if err == nil {
		err = f.limitReads(neverSilent)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	f.setSilence(s.silence)
	s.mu.Lock()
	s.store, s.process = welcome.Store, welcome.Process
	s.mu.Unlock()
	s.epoch++
	s.standby.follow()
	s.sayAgain(f)
	return f, nil
}

// introduceAgain identifies this rank to one that runs the store or will. With question
// it only asks what the other knows of this rank, at once.
func (s *Session) introduceAgain(conn net.Conn, key secret, question bool) (*message, *frameConn, error) {
	stop := afterRunning(s.replyTime(), func() { _ = conn.SetDeadline(time.Now()) })
	f, err := greet(conn, key, storeID{}, time.Time{})
	stop()
	if err != nil {
		return nil, nil, err
	}
	hello := message{Kind: msgResume, Member: s.members[s.rank], World: len(s.members), Epoch: s.epoch, Question: question,
		Process: thisProcess(), Standings: s.standings()}
	if err := f.write(hello.frame()); err != nil {
		return nil, nil, err
	}
	for {
		if err := f.limitReads(s.heartbeat + s.replyTime()); err != nil {
			return nil, nil, err
		}
		reply, err := f.receive()
		if err != nil {
			return nil, nil, err
		}
		switch reply.Kind {
		case msgBeat:
			if question {
				return nil, nil, nil
			}
		case msgWelcome:
			return reply, f, nil
		case msgRefuse:
			return nil, nil, &refused{reply.Err, reply.Retry}
		default:
			return nil, nil, plugin.Errorf(plugin.Protocol, "message %d came, want a welcome", reply.Kind)
		}
	}
}

// sayAgain tells a new store everything that the lost one knew from this rank,
// and makes it the one that is spoken to. Nothing else is said meanwhile. What
// cannot be sent is noticed by the reader.
func (s *Session) sayAgain(f *frameConn) {
	s.out.Lock()
	defer s.out.Unlock()
	s.mu.Lock()
	var all []*message
	regroup := func(g *Group) {
		all = append(all, &message{Kind: msgRegroup, Group: g.id, Key: g.key, Ranks: g.ranks, Err: g.failed,
			Seq: g.heard, Recent: slices.Concat(g.recent, g.failures)})
		if g.tells != nil {
			all = append(all, g.tells)
		}
	}
	open := make([]*Group, 0, len(s.groups))
	for _, g := range s.groups {
		open = append(open, g)
	}
	slices.SortFunc(open, func(a, b *Group) int { return cmp.Compare(a.id, b.id) })
	for _, g := range open {
		regroup(g)
	}
	for _, g := range s.parted {
		regroup(g)
	}
	for _, w := range s.waiters {
		op := w.op
		op.Again = true
		all = append(all, &op)
		if w.cancel != nil {
			all = append(all, &message{Kind: msgCancel, Group: op.Group, Tag: op.Tag, Err: w.cancel, Again: true})
		}
	}
	for _, g := range s.parted {
		all = append(all, &message{Kind: msgUngroup, Group: g.id, Again: true})
	}
	all = append(all, &message{Kind: msgResumed})
	if s.closed {
		all = append(all, &message{Kind: msgBye})
	}
	s.mu.Unlock()
	for _, m := range all {
		if _, err := f.say(m); err != nil {
			f.Close()
			break
		}
	}
	s.link.Store(f)
}

// hopelessAfter is the time that collectives with a dead rank in them wait for a
// successor of the store, which would give all ranks the same error.
const hopelessAfter = 1500 * time.Millisecond

// failHopeless fails, on this rank alone, the collectives in progress that have
// a dead rank in them.
func (s *Session) failHopeless() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, w := range s.waiters {
		g := s.groups[k.group]
		if g == nil || w.op.Op == opSurvivors {
			continue
		}
		for _, rank := range g.ranks {
			if s.states[rank] == Dead {
				delete(s.waiters, k)
				w.reply <- &message{Err: numbered(s.reasons[rank], g.ranks, g.key)} // capacity 1, one reply each
				break
			}
		}
	}
}
